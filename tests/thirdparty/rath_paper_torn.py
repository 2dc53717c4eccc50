"""An adapter that cannot be loaded: discovery reports it and goes on."""

raise RuntimeError("the paper is torn")
