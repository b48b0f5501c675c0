"""Parses the body of a generated C++ kernel: only the statements and expressions that Inductor writes.

Anything else raises `NotUnderstoodError`, because nothing may be concluded from part of a kernel.
"""

from __future__ import annotations

from collections.abc import Sequence

from stepscope.viewer.kernel_source.cpp_syntax import (
    CppBlock,
    Declaration,
    Evaluation,
    Expression,
    If,
    Lambda,
    Loop,
    Name,
    Node,
    Number,
    Statement,
)
from stepscope.viewer.kernel_source.cpp_tokens import NotUnderstoodError, Token, tokens

_DEEPEST = 120
_LONGEST = 64
"""The number of operators or template arguments that may follow one another."""
_IN_TEMPLATES = frozenset({"::", ",", "&", "*", "-", "+", "(", ")", "[", "]"})
_LEVELS = (
    ("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", ">", "<=", ">="), ("<<",), ("+", "-"),
    ("*", "/", "%"),
)  # fmt: skip
_PRECEDENCE = {sign: level for level, signs in enumerate(_LEVELS) for sign in signs}
ASSIGNING = frozenset({"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="})
"""Signs of assignments."""
_UNARY = frozenset({"-", "+", "!", "~", "&", "*", "++", "--"})
_OTHERS = frozenset(
    {"while", "do", "switch", "case", "default", "break", "continue", "goto", "try", "throw", "delete", "using"}
)
"""Statements that change which others run or what names mean, and that no kernel of Inductor has."""
_QUALIFIERS = frozenset({"const", "static", "constexpr", "volatile", "unsigned", "__at_align__", "typename"})


def body_of(code: str) -> tuple[list[Token], list[tuple[str, bool]], CppBlock]:
    """Return the tokens of a kernel's definition, its parameters with whether each is a pointer, and its body.

    Raises NotUnderstoodError.
    """
    parser = _Parser(tokens(code))
    try:
        parameters = parser.signature()
        return parser.tokens, parameters, parser.block()
    except RecursionError as error:
        raise NotUnderstoodError from error


class _Parser:
    def __init__(self, found: list[Token]) -> None:
        self.tokens = found
        self.at = 0
        self.depth = self.lambdas = 0
        self.is_parallel = False

    def text(self, ahead: int = 0) -> str:
        at = self.at + ahead
        return self.tokens[at].text if at < len(self.tokens) else ""

    def kind(self, ahead: int = 0) -> str:
        at = self.at + ahead
        return self.tokens[at].kind if at < len(self.tokens) else ""

    def take(self, expected: str | None = None) -> Token:
        if self.at >= len(self.tokens) or (expected is not None and self.text() != expected):
            raise NotUnderstoodError
        self.at += 1
        return self.tokens[self.at - 1]

    def take_if(self, text: str) -> bool:
        if self.text() != text:
            return False
        self.at += 1
        return True

    def name(self) -> str:
        if self.kind() != "name":
            raise NotUnderstoodError
        return self.take().text

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise NotUnderstoodError

    def signature(self) -> list[tuple[str, bool]]:
        """Return the parameters of the function ``kernel`` or ``<name>_kernel``, and go to its body."""
        while not (self.kind() == "name" and "kernel" in self.text() and self.text(1) == "("):
            self.take()
        self.at += 2
        parameters: list[tuple[str, bool]] = []
        part: list[str] = []
        while self.text() != "{":
            token = self.take()
            if token.text in (",", ")"):
                if part:
                    parameters.append((part[-1], "*" in part))
                part = []
            else:
                part.append(token.text)
        return parameters

    def block(self) -> CppBlock:
        self.deeper()
        self.take("{")
        found = []
        while self.text() != "}":
            one = self.statement()
            if one is not None:
                found.append(one)
        self.take("}")
        self.depth -= 1
        return CppBlock(tuple(found))

    def statement(self) -> Statement | None:
        if self.kind() == "pragma":
            words = self.take().text.split()
            self.is_parallel = self.is_parallel or ("omp" in words and "for" in words)
            return None
        text = self.text()
        if text == ";":
            self.take()
            return None
        if text == "{":
            return self.block()
        if text == "for":
            return self.loop()
        if text == "if":
            return self.condition()
        if text in _OTHERS or (text == "return" and not self.lambdas):
            raise NotUnderstoodError
        if text == "return":
            self.take()
            value: Expression = Number("0") if self.text() == ";" else self.expression()
            self.take(";")
            return Evaluation(value)
        return self.simple()

    def one_statement(self) -> Statement:
        self.deeper()
        while (found := self.statement()) is None:
            if self.at >= len(self.tokens):
                raise NotUnderstoodError
        self.depth -= 1
        return found

    def loop(self) -> Loop:
        is_parallel, self.is_parallel = self.is_parallel, False
        self.take("for")
        self.take("(")
        while self.text(1) != "=":
            if self.kind() != "name":
                raise NotUnderstoodError
            self.take()
        variable = self.name()
        self.take("=")
        begin = self.expression()
        self.take(";")
        if self.name() != variable:
            raise NotUnderstoodError
        self.take("<")
        limit = self.binary(_PRECEDENCE["<<"])
        self.take(";")
        step = self.step(variable)
        self.take(")")
        return Loop(variable, begin, limit, step, self.one_statement(), is_parallel)

    def step(self, variable: str) -> Expression:
        if self.take_if("++"):
            if self.name() != variable:
                raise NotUnderstoodError
            return Number("1")
        if self.name() != variable:
            raise NotUnderstoodError
        if self.take_if("++"):
            return Number("1")
        self.take("+=")
        return self.expression()

    def condition(self) -> If:
        self.take("if")
        self.take("(")
        test = self.expression()
        self.take(")")
        then = self.one_statement()
        return If(test, then, self.one_statement() if self.take_if("else") else None)

    def simple(self) -> Statement:
        """Read a declaration or an expression."""
        declared = self.declared_name()
        if declared is None:
            value = self.expression()
            self.take(";")
            return Evaluation(value)
        parts: list[Expression] = []
        while self.text() == "[":
            self.take()
            if self.text() != "]":
                parts.append(self.expression())
            self.take("]")
        if self.take_if("="):
            parts.append(self.expression())
        elif self.text() in ("{", "("):
            parts.append(self.braces("{", "}") if self.text() == "{" else self.braces("(", ")"))
        self.take(";")
        if len(parts) == 1:
            return Declaration(declared, parts[0])
        return Declaration(declared, Node("list", tuple(parts)) if parts else None)

    def declared_name(self) -> str | None:
        """Go behind a type and a name, and return the name. If there is no type here, return None without moving."""
        start = self.at
        while self.text() in _QUALIFIERS or self.text() == "alignas":
            if self.take().text == "alignas":
                self.skip_brackets()
        if self.kind() == "name" and self.qualified():
            while self.text() in ("*", "&", "const"):
                self.take()
            if self.kind() == "name" and self.text(1) in ("=", ";", "{", "[", "("):
                return self.take().text
        self.at = start
        return None

    def qualified(self) -> str:
        """Return a name with its namespaces, without template arguments. ``decltype(x)`` is a name, too."""
        self.take_if("::")
        parts = []
        while True:
            if self.text() == "template":
                self.take()
            parts.append(self.name())
            if parts[-1] == "decltype" and self.text() == "(":
                self.skip_brackets()
            self.template_arguments()
            if self.text() != "::":
                return "::".join(parts)
            self.take()

    def skip_brackets(self) -> None:
        self.take("(")
        depth = 1
        while depth:
            text = self.take().text
            depth += (text == "(") - (text == ")")

    def template_arguments(self) -> None:
        """Go behind template arguments if there are some here."""
        if self.text() != "<":
            return
        depth, brackets = 0, 0
        for ahead in range(_LONGEST):
            text = self.text(ahead)
            if text == "<":
                depth += 1
            elif text == ">" and not brackets:
                depth -= 1
            elif self.kind(ahead) not in ("name", "number") and text not in _IN_TEMPLATES:
                return
            brackets += (text in ("(", "[")) - (text in (")", "]"))
            if brackets < 0:
                return
            if depth == 0:
                behind, kind = self.text(ahead + 1), self.kind(ahead + 1)
                if behind in ("(", "::", "{", "&", "*", ">", ",") or kind == "name":
                    self.at += ahead + 1
                return

    def expression(self) -> Expression:
        self.deeper()
        found = self.choice()
        if self.text() in ASSIGNING:
            sign = self.take().text
            found = Node(sign, (found, self.expression()))
        self.depth -= 1
        return found

    def choice(self) -> Expression:
        found = self.binary(0)
        if self.take_if("?"):
            then = self.expression()
            self.take(":")
            found = Node("?", (found, then, self.expression()))
        return found

    def binary(self, level: int) -> Expression:
        links = 0
        found = self.unary()
        while (sign := self.text()) in _PRECEDENCE and _PRECEDENCE[sign] >= level and self.kind() == "sign":
            self.take()
            found = Node(sign, (found, self.binary(_PRECEDENCE[sign] + 1)))
            links = self.link(links)
        return found

    @staticmethod
    def link(links: int) -> int:
        """Count one more operator of a chain, each of which contains those before."""
        if links >= _LONGEST:
            raise NotUnderstoodError
        return links + 1

    def unary(self) -> Expression:
        if self.text() in _UNARY and self.kind() == "sign":
            self.deeper()
            sign = self.take().text
            found: Expression = Node(sign, (self.unary(),))
            self.depth -= 1
            return found
        return self.postfix()

    def postfix(self) -> Expression:
        links = 0
        found = self.primary()
        while True:
            text, links = self.text(), self.link(links)
            if text == "(":
                found = Node("call", (found, *self.arguments("(", ")")))
            elif text == "[":
                found = Node("index", (found, *self.arguments("[", "]")))
            elif text in (".", "->"):
                self.take()
                self.take_if("template")
                name = self.name()
                self.template_arguments()
                found = Node("member:" + name, (found,))
            elif text in ("++", "--"):
                self.take()
                found = Node(text, (found,))
            elif text == "{" and isinstance(found, Name):
                found = Node("call", (found, *self.arguments("{", "}")))
            else:
                return found

    def primary(self) -> Expression:
        kind, text = self.kind(), self.text()
        if kind == "number":
            return Number(self.take().text)
        if kind == "text":
            while self.kind() == "text":
                self.take()
            return Number('""')
        if text == "(":
            found = self.arguments("(", ")")
            return found[0] if len(found) == 1 else Node("list", tuple(found))
        if text == "[":
            return self.function()
        if text == "{":
            return self.braces("{", "}")
        if kind == "name":
            first = self.at
            name = self.qualified()
            written = "".join(token.text for token in self.tokens[first : self.at])
            return Name(name, first, written.partition("<")[2].removesuffix(">"))
        raise NotUnderstoodError

    def function(self) -> Lambda:
        """Return a lambda. It captures all names around it."""
        self.take("[")
        while self.text() in ("&", "=", ","):
            self.take()
        self.take("]")
        if self.take_if("("):
            while not self.take_if(")"):
                if self.text() in ("(", "{", "}", ";"):
                    raise NotUnderstoodError
                self.take()
        self.lambdas += 1
        body = self.block()
        self.lambdas -= 1
        return Lambda(body)

    def braces(self, opening: str, closing: str) -> Expression:
        return Node("list", tuple(self.arguments(opening, closing)))

    def arguments(self, opening: str, closing: str) -> Sequence[Expression]:
        self.deeper()
        self.take(opening)
        found = []
        while self.text() != closing:
            found.append(self.expression())
            if not self.take_if(","):
                break
        self.take(closing)
        self.depth -= 1
        return found
