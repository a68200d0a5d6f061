"""A tree of memoised calls, as in making pictures from text."""

from __future__ import annotations

from typing import Any


class Pictures:
    """Two encoders and what draws from them; the tests make the memos, and note their calls."""

    calls: list[Any]
    words: Any
    sizes: Any
    draw: Any

    def picture(self, text: str, steps: int) -> Any:
        """The node of a picture; both encoders' nodes are below it."""
        words = self.words.node(text)
        return self.draw.node({"words": words, "sizes": [self.sizes.node(words)]}, steps=steps)
