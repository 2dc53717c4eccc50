"""Trees: their shape is a function of their content, and a small change makes few nodes."""

from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rath_bridge.errors import CorruptStoreError
from rath_bridge.model.digests import digest
from rath_bridge.model.encoding import TreeRef
from rath_bridge.model.trees import MAX_ITEMS, Nodes, Tree, children, list_tree, map_tree, open_list, read_list, read_map


def items(*names: object) -> list[bytes]:
    return [sha256(str(name).encode()).digest() for name in names]


def fetch(nodes: Nodes):
    return lambda names: {name: nodes[name] for name in names}


few = st.integers(0, 6)  # few different items, so that equal ones repeat
many = st.integers(0, 10**6)
lists = st.one_of(st.lists(few, max_size=200), st.lists(many, max_size=300), st.integers(0, 400).map(lambda n: list(range(n))))


@given(lists)
def test_a_list_reads_back(names: list[int]) -> None:
    tree, nodes = list_tree(items(*names))
    assert read_list(tree.ref, fetch(nodes)) == items(*names)
    assert tree.ref.count == len(names)
    assert all(digest(data) == name for name, data in nodes.items())
    again = open_list(tree.ref, fetch(nodes))
    assert again == tree


@given(lists, lists)
def test_the_shape_does_not_depend_on_the_old_tree(old: list[int], new: list[int]) -> None:
    before, nodes = list_tree(items(*old))
    tree, added = list_tree(items(*new), before)
    alone, all_nodes = list_tree(items(*new))
    assert tree == alone
    assert added.keys() <= all_nodes.keys()
    assert read_list(tree.ref, fetch({**nodes, **added})) == items(*new)


@given(lists, st.data())
def test_nor_on_how_it_was_edited(start: list[int], data: st.DataObject) -> None:
    names = list(start)
    tree, held = list_tree(items(*names))
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(names)))
        match data.draw(st.sampled_from(["append", "chunk", "drop", "drop first", "edit", "insert", "window"])):
            case "append":
                names.append(data.draw(many))
            case "chunk":
                names += data.draw(st.lists(few, max_size=40))
            case "drop":
                del names[at : at + 3]
            case "drop first":
                del names[:1]
            case "edit":
                names[at : at + 1] = [data.draw(many)]
            case "insert":
                names.insert(at, data.draw(few))
            case "window":
                names = names[-50:]
        tree, added = list_tree(items(*names), tree)
        held |= added
        assert tree == list_tree(items(*names))[0]
        assert read_list(tree.ref, fetch(held)) == items(*names)


def test_one_by_one_is_the_same_as_at_once() -> None:
    tree: Tree | None = None
    for size in range(300):
        tree, _ = list_tree(items(*range(size)), tree)
        assert tree == list_tree(items(*range(size)))[0]


def test_every_node_but_the_last_of_its_level_is_cut_by_content_or_full() -> None:
    tree, nodes = list_tree(items(*range(3000)))
    for number, level in enumerate(tree.levels):
        for node in level[:-1]:
            form, height, found = children(nodes[node.digest.hex()])
            assert (form, height) == ("L", number)
            assert 2 <= len(found) <= MAX_ITEMS
            assert len(found) == MAX_ITEMS or found[-1][1][31] % 8 == 0
            assert not any(value[31] % 8 == 0 for _, value in found[1:-1])


@pytest.mark.parametrize("size", [1000, 10_000])
def test_small_changes_make_few_nodes(size: int) -> None:
    names = list(range(size))
    base, nodes = list_tree(items(*names))
    depth = len(base.levels)
    changes = {
        "append": [*names, "new"],
        "append 10": [*names, *(f"new {i}" for i in range(10))],
        "drop first": names[1:],
        "drop last": names[:-1],
        "edit": [*names[: size // 2], "edited", *names[size // 2 + 1 :]],
        "insert": [*names[: size // 3], "inserted", *names[size // 3 :]],
    }
    for what, changed in changes.items():
        _, added = list_tree(items(*changed), base)
        assert len(added) <= 4 * depth, (what, len(added), depth)
    window, fresh = base, dict(nodes)
    total = 0
    for step in range(100):  # append one, drop the first: a trimmed window
        names = [*names[1:], f"step {step}"]
        window, added = list_tree(items(*names), window)
        total += len(added.keys() - fresh.keys())
        fresh |= added
    assert total <= 100 * 4 * depth


def test_empty_and_single() -> None:
    empty, nodes = list_tree([])
    assert nodes == {empty.ref.digest: b"L\0"}
    assert empty.ref == TreeRef(digest(b"L\0"), 0, "list")
    assert read_list(empty.ref, fetch(nodes)) == []
    grown, added = list_tree(items("a"), empty)
    assert grown == list_tree(items("a"))[0]
    assert list_tree([], grown)[0] == empty
    assert added[grown.ref.digest] == b"L\0" + items("a")[0]
    ref, nodes = map_tree({})
    assert nodes == {ref.digest: b"M\0"}
    assert read_map(ref, fetch(nodes)) == {}


@pytest.mark.parametrize("name", ["never cut", "always cut"])
def test_a_thousand_equal_items(name: str) -> None:
    item = bytes(31) + (b"\x01" if name == "never cut" else b"\x08")
    tree, nodes = list_tree([item] * 1000)
    assert read_list(tree.ref, fetch(nodes)) == [item] * 1000
    assert len(nodes) <= 8 * len(tree.levels)
    assert list_tree([item] * 1001, tree)[0] == list_tree([item] * 1001)[0]


map_keys = st.text(st.characters(exclude_categories=()), max_size=6)


@given(st.dictionaries(map_keys, many, max_size=120), st.randoms(use_true_random=False))
def test_a_map_reads_back_whatever_its_order(entries: dict[str, int], random) -> None:
    values = {key: items(name)[0] for key, name in entries.items()}
    ref, nodes = map_tree(values)
    assert read_map(ref, fetch(nodes)) == values
    assert ref.count == len(values)
    assert ref.form == "map"
    pairs = list(values.items())
    random.shuffle(pairs)
    assert map_tree(dict(pairs)) == (ref, nodes)


def test_a_map_shares_nodes_with_its_next_version() -> None:
    values = {f"file-{i:04}": items(i)[0] for i in range(2000)}
    _, before = map_tree(values)
    _, after = map_tree({**values, "file-1000": items("edited")[0], "new": items("new")[0]})
    assert len(after.keys() - before.keys()) <= 16


def test_a_map_with_long_keys() -> None:
    values = {"k" * size: items(size)[0] for size in (0, 1, 127, 128, 129, 16_383, 16_384, 70_000)}
    ref, nodes = map_tree(values)
    assert read_map(ref, fetch(nodes)) == values


@pytest.mark.parametrize(
    "data",
    [b"", b"L", b"X\0", b"L\0abc", b"M\0\x01", b"M\0\x01k" + bytes(31), b"M\0\x85", b"M\0" + b"\xff" * 9, b"L\x01", b"M\x01",
     b"M\0\x01\xff" + bytes(32)],
)  # fmt: skip
def test_bytes_that_are_no_node_are_refused(data: bytes) -> None:
    for read in (read_list, read_map):
        with pytest.raises(CorruptStoreError, match="tree node"):
            read(TreeRef(digest(data), 1), fetch({digest(data): data}))


def test_a_tree_whose_levels_do_not_fit_is_refused() -> None:
    leaf, other = b"L\0" + items("a")[0], b"M\0" + b"\x01k" + items("b")[0]
    for level, below in ((2, [leaf]), (1, [leaf, other]), (1, [other])):
        root = b"L" + bytes((level,)) + b"".join(sha256(data).digest() for data in below)
        nodes = {digest(data): data for data in (leaf, other, root)}
        with pytest.raises(CorruptStoreError, match="tree node"):
            read_list(TreeRef(digest(root), 2), fetch(nodes))


@given(st.binary(max_size=120))
def test_any_bytes_are_parsed_or_refused(data: bytes) -> None:
    for prefix in (b"", b"L\0", b"M\0"):
        try:
            children(prefix + data)
        except CorruptStoreError:
            continue
