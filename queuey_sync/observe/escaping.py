r"""Texts that others wrote, made fit for a log: a job type from a message, the text of an error.

A log record stays one line of bounded length, and shows what was there. Only a traceback has lines
of its own. Pure, and knows nothing of jobs or logging: whoever logs such a text calls this.
"""

import traceback

LONGEST_TEXT = 2_000
"""Characters of a text that a record shows: any message that a person wrote, and no payload."""
LONGEST_NAME = 255
"""Characters of a name that a record shows; no queue of a broker has a longer one."""
LONGEST_TRACEBACK = 16_000
"""Characters of a traceback that a record shows: some hundred frames, source lines included."""


def one_line(text: object, longest: int = LONGEST_TEXT) -> str:
    r"""A text, or that of an error, in one line; what cannot be printed is escaped.

    Backslashes stay as they are: the line is for reading, not for reading back.

    >>> one_line("mail.send"), one_line(ValueError("no\n\x1b[31mpoint"))
    ('mail.send', 'no\\n\\x1b[31mpoint')
    >>> one_line("x" * 100_000, 5)
    'xxxxx… (100000 characters)'
    """
    whole = text if isinstance(text, str) else _text_of(text)
    shown = _escaped(whole[:longest])
    if len(whole) <= longest and len(shown) <= longest:
        return shown
    return f"{shown[:longest]}… ({len(whole)} characters)"


def traceback_lines(trace: BaseException | str) -> str:
    """A traceback to follow the line of a record: begins with a line break, or is empty.

    Where it is too long the middle is left out: where it began and what it ended with say most.
    """
    text = (trace if isinstance(trace, str) else traceback_of(trace)).rstrip()
    if len(text) <= LONGEST_TRACEBACK:
        parts = [text] if text else []
    else:
        half = LONGEST_TRACEBACK // 2
        left_out = f"… {len(text) - LONGEST_TRACEBACK} characters left out …"
        parts = [text[:half], left_out, text[-half:]]
    lines = "".join("\n" + "\n".join(map(_escaped, part.split("\n"))) for part in parts)
    return lines if len(lines) <= 2 * LONGEST_TRACEBACK else lines[: 2 * LONGEST_TRACEBACK] + "…"


def describe(error: object) -> str:
    """Type and text of an error, also of one whose text cannot be made.

    >>> describe(ValueError("boom")), describe(KeyError())
    ('ValueError: boom', 'KeyError')
    """
    name = type(error).__name__
    try:
        text = str(error)
    except BaseException as fault:  # noqa: BLE001 - an error's __str__ may be anybody's code
        return f"{name} (its text cannot be made: {type(fault).__name__})"
    return f"{name}: {text}" if text else name


def traceback_of(error: BaseException) -> str:
    """The traceback of an error, also of one whose text cannot be made."""
    try:
        return "".join(traceback.format_exception(error))
    except BaseException:  # noqa: BLE001 - it calls the __str__ of every error in the chain
        return "".join(traceback.format_tb(error.__traceback__))


def _escaped(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def _text_of(error: object) -> str:
    try:
        return str(error)
    except BaseException:  # noqa: BLE001 - an error's __str__ may be anybody's code
        return describe(error)
