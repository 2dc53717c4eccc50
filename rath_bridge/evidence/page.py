"""The looks of ``report.html``: one page, nothing executed, nothing fetched. Foreign text enters through `text` only."""

from __future__ import annotations

from html import escape
from typing import Final

from rath_bridge.verbs.inert import inert

POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"

STYLE: Final = """
:root{--ink:#1c2430;--soft:#5b6675;--faint:#667080;--line:#e3e7ec;--page:#f6f7f9;--card:#fff;--accent:#2a5bd7;--good:#1a7f4b;
--warn:#a15c00;
--bad:#b3261e;--c0:#2a5bd7;--c1:#b0479a;--c2:#1a8f7a;--c3:#b06a00;--c4:#6a5acd;--c5:#4d7c0f}
@media screen and (prefers-color-scheme:dark){:root{--ink:#e4e8ee;--soft:#a3adba;--faint:#8b95a3;--line:#2c3440;
--page:#12161c;--card:#1a2029;--accent:#86a9ff;
--good:#5fce94;--warn:#e3a857;--bad:#ff8f87;--c0:#86a9ff;--c1:#e58fd2;--c2:#5fd0ba;--c3:#e3a857;--c4:#a99cf5;--c5:#a3d160}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);
font:15px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
main{max-width:1080px;margin:0 auto;padding:40px 24px 80px}
h1{font-size:28px;line-height:1.2;margin:0 0 4px;letter-spacing:-.01em;overflow-wrap:anywhere}
h2{font-size:18px;margin:44px 0 12px;letter-spacing:-.005em}
h3{font-size:14px;margin:0 0 8px;color:var(--soft);font-weight:600}
p{margin:6px 0}.soft{color:var(--soft)}.small{font-size:13px}
code,.id{font:12.5px/1.5 ui-monospace,"SF Mono",Menlo,Consolas,"DejaVu Sans Mono",monospace}
a{color:var(--accent);text-decoration:none}a:hover{text-decoration:underline}
.figures{display:flex;flex-wrap:wrap;gap:12px 36px;margin:22px 0 0}
.figures div{min-width:64px}.figures b{display:block;font-size:22px;font-weight:650;letter-spacing:-.01em;
font-variant-numeric:tabular-nums}
.figures span{color:var(--soft);font-size:13px}
.who{margin-top:18px}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(270px,1fr));gap:14px;margin-top:26px}
.cards.first{grid-template-columns:1.5fr 1fr 1fr}
.card{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:16px 18px;overflow-wrap:anywhere}
.card.wide{overflow-x:auto}
.first code{font-size:11.5px}
.verdict{font-size:17px;font-weight:650;margin:0 0 6px}.good{color:var(--good)}.warn{color:var(--warn)}.bad{color:var(--bad)}
ul{margin:6px 0;padding-left:18px}li{margin:3px 0}
table{border-collapse:collapse;width:100%}th{text-align:left;font-weight:600;color:var(--soft);font-size:13px;
padding:4px 14px 6px 0}
td{padding:5px 14px 5px 0;vertical-align:top;border-top:1px solid var(--line)}th,.claims td:nth-child(n+3){white-space:nowrap}
pre{background:var(--page);border:1px solid var(--line);border-radius:8px;padding:10px 12px;margin:8px 0;font-size:12px;
line-height:1.5;white-space:pre-wrap;overflow-wrap:anywhere}
.q{margin:14px 0 4px;font-weight:600}.q:first-child{margin-top:0}.rows{margin:0;padding:0;list-style:none}
.rows li{padding:3px 0}.chain li:first-child{font-size:16px}
.chain li+li{padding-left:14px;border-left:2px solid var(--line);color:var(--soft);font-size:14px;margin:0}
.time{position:relative;margin-top:8px}
.row{display:grid;grid-template-columns:92px 118px 1fr 76px;gap:12px;padding:7px 10px;
border-left:3px solid transparent}
.row:target{background:var(--card);outline:2px solid var(--accent)}
.row .at,.row .id{color:var(--faint);font-size:12px;font-variant-numeric:tabular-nums;padding-top:2px}
.row .kind{font-size:12px;color:var(--soft);padding-top:2px;overflow-wrap:anywhere}.row .kind b{display:block;color:var(--ink);
font-weight:600}
.row .what{white-space:pre-wrap;overflow-wrap:anywhere;min-width:0}
.row.message{background:var(--card);border:1px solid var(--line);border-left-width:3px;margin:4px 0;
border-radius:0 8px 8px 0}
.row.minor{display:none;color:var(--soft);font-size:13px}
body:has(#minor:checked) .row.minor,.row.minor:target{display:grid}
.row.error .what,.row.gap .what,.row.redaction .what,.row.failed .what{color:var(--bad)}
.l0{border-left-color:var(--c0)!important}.l1{border-left-color:var(--c1)!important}.l2{border-left-color:var(--c2)!important}
.l3{border-left-color:var(--c3)!important}.l4{border-left-color:var(--c4)!important}.l5{border-left-color:var(--c5)!important}
.lane{font-size:13px;font-weight:600;margin:22px 0 6px;color:var(--soft)}
.cut{color:var(--faint);text-align:center;padding:14px;font-size:13px}
label{font-size:13px;color:var(--soft);cursor:pointer}input{vertical-align:-2px}
svg{display:block;max-width:100%;height:auto}svg text{fill:var(--ink);font:12px system-ui,sans-serif}svg .s{fill:var(--faint);
font-size:11px}
svg path{fill:none;stroke-width:2}
.g0{stroke:var(--c0);fill:var(--c0)}.g1{stroke:var(--c1);fill:var(--c1)}.g2{stroke:var(--c2);fill:var(--c2)}.g3{stroke:var(--c3);
fill:var(--c3)}
.g4{stroke:var(--c4);fill:var(--c4)}.g5{stroke:var(--c5);fill:var(--c5)}
footer{margin-top:60px;padding-top:16px;border-top:1px solid var(--line);color:var(--faint);font-size:13px}
@media screen and (max-width:720px){main{padding:24px 14px}.cards.first{grid-template-columns:1fr}
svg text{font-size:26px}svg .s{display:none}svg path{stroke-width:4}svg circle{stroke-width:5}
.claims tr{display:block;border-top:1px solid var(--line);padding:8px 0}.claims td{display:block;border:0;padding:1px 0}
.claims tr:first-child{display:none}.claims td:last-child::before{content:"rests on the ";color:var(--soft)}
.figures{display:grid;grid-template-columns:repeat(3,1fr)}.row{grid-template-columns:84px 1fr}.row .what{grid-column:1/-1}
.row .id{display:none}}
@media print{body{background:#fff;font-size:12px}main{max-width:none;padding:0}.cards .card,.row{break-inside:avoid}
h2,.q,.lane{break-after:avoid}label{display:none}}
@page{margin:16mm}
"""


def text(value: str, limit: int = 400) -> str:
    """Foreign text as HTML: no markup, no control or hidden characters, not endless; line ends stay."""
    cut = "…" if len(value) > limit else ""
    return escape(inert(value[:limit], keep="\n\t"), quote=True) + cut


def document(title: str, body: str) -> bytes:
    """Return the whole page; lone surrogates do not get this far."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n<meta name="referrer" content="no-referrer">\n'
        f"<title>{text(title, 120)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    ).encode()
