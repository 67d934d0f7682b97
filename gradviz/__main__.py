"""The `gradviz` command, and `python -m gradviz`, which is the same."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point. What takes time is imported inside, so that Ctrl-C ends it quietly
    from the first moment on.
    """
    try:
        from gradviz.cli.main import main as run

        run()
    except (KeyboardInterrupt, RuntimeError) as error:
        # the latter up to Python 3.11, while a class is made
        if not isinstance(error, KeyboardInterrupt) and not isinstance(
            error.__cause__, KeyboardInterrupt
        ):
            raise
        if sys.stderr is not None:
            sys.stderr.write("Interrupted; nothing was written.\n")
        # CPython notes when Ctrl-C ends code that was made from text, as the methods of
        # a dataclass are (`_PyRuntime.signals.unhandled_keyboard_interrupt`, set in
        # `run_eval_code_obj`), and `Py_RunMain` then ends the process by the signal,
        # whoever caught the exception. Running any text takes the note back.
        exec("")
        sys.exit(130)


if __name__ == "__main__":
    main()
