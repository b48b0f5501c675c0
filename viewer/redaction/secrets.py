"""Finds the strings that a redacted report must not hold, and replaces them within texts that are kept."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from functools import cache

from stepscope.viewer.redaction import common_words

WORD = re.compile(r"\w{4,}")
HOME = re.compile(r"(/home/|/Users/|/users/|[A-Za-z]:\\{1,2}Users\\{1,2})([^/\\\s'\"<>&:]+)")
"""The folder of a user's home, and the name of the user."""
LEAST_INSIDE = 6
"""Minimum number of characters of a word that is also looked for within other words."""
_NUMBER = re.compile(r"\d+e\d*")
"""A part of a number with an exponent, such as 1.25e-07."""
_LEAST_LETTERS, _LEAST_LETTERS_OF_PATH = 16, 10
_NOTHING: Mapping[str, set[str]] = {}


class Secrets:
    """Strings that were to go, by kind: the distinctive words among them, and the texts that only a whole tells."""

    def __init__(self, texts: Mapping[str, set[str]], only_words: Mapping[str, set[str]] = _NOTHING) -> None:
        """Take the texts, and of `only_words` the distinctive words alone: some of these are sentences of stepscope."""
        self.words: dict[str, str] = {}
        """Kind of each distinctive word."""
        self.wholes: dict[str, str] = {}
        """Kind of each text that is more than a word."""
        for kind, found in texts.items():
            for text in found:
                self._add(kind, text)
        for kind, found in only_words.items():
            for text in found:
                self._add_words(kind, text)
        self.users = frozenset(texts.get("user", ()))
        """Names of users, which may be too short or too common to be looked for outside of a path."""
        self._inside = [word for word in self.words if is_distinctive_inside(word)]

    def _add_words(self, kind: str, text: str) -> list[str]:
        words = WORD.findall(text)
        for word in words:
            if is_distinctive(word):
                self.words.setdefault(word, kind)
        return words

    def _add(self, kind: str, text: str) -> None:
        if [text] != self._add_words(kind, text) and is_telling(text):
            self.wholes.setdefault(" ".join(text.split()), kind)

    def kind_of(self, word: str, known: Collection[str] = ()) -> str | None:
        """Return the kind of the secret that `word` is or holds, or None; the words `known` are no secrets."""
        if word in self.words:
            return self.words[word]
        if len(word) <= LEAST_INSIDE:
            return None
        inside = (secret for secret in self._inside if secret in word and secret not in known)
        return next((self.words[secret] for secret in inside), None)

    def replaced(self, text: str, placeholder: Callable[[str, str], str]) -> str:
        """Return `text` with a placeholder, of the kind and the string, for each secret in it."""

        def home(found: re.Match[str]) -> str:
            return found[1] + placeholder("user", found[2]) if found[2] in self.users else found[0]

        text = HOME.sub(home, text)
        for whole, kind in self.wholes.items():
            if whole in text:
                text = text.replace(whole, placeholder(kind, whole))

        def shown(found: re.Match[str]) -> str:
            kind = self.kind_of(found[0])
            return placeholder(kind, found[0]) if kind is not None else found[0]

        return WORD.sub(shown, text)


def is_distinctive(word: str) -> bool:
    """Return whether a word cannot come from stepscope, from PyTorch or from the names that Inductor numbers."""
    if _NUMBER.fullmatch(word):
        return False
    return any(map(str.isalpha, word)) and word not in common_words.words() and not common_words.is_public(word)


@cache
def is_distinctive_inside(word: str) -> bool:
    return len(word) >= LEAST_INSIDE and word not in common_words.joined()


def is_telling(text: str) -> bool:
    """Return whether a text is long enough to be looked for as a whole although its words may be common."""
    least = _LEAST_LETTERS_OF_PATH if "/" in text or "\\" in text else _LEAST_LETTERS
    return sum(map(str.isalpha, text)) >= least and " ".join(text.split()) not in common_words.corpus()
