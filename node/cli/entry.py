"""Where `rota` begins: `rota ctx`, which scripts call often, does without all that the other commands import."""

import sys


def main() -> None:
    """Run the command line."""
    if sys.argv[1:2] == ["ctx"]:
        from node.cli.ctx_call import call

        sys.exit(call(sys.argv[2:]))
    from node.cli.main import main as others

    others()


if __name__ == "__main__":
    main()
