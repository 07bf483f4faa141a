"""The entry point of `rota`.

`rota ctx`, which scripts call often, starts without the imports of other commands; `rota node` first removes its
secrets from its environment.
"""

import sys


def main() -> None:
    """Run the command line."""
    if sys.argv[1:2] == ["ctx"]:
        from node.cli.ctx_call import call

        sys.exit(call(sys.argv[2:]))
    if sys.argv[1:2] == ["node"]:
        from node.cli.node_process import enter_node

        enter_node()
    from node.cli.main import main as others

    others()


if __name__ == "__main__":
    main()
