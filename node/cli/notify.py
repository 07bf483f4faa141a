"""Commands for the channels on which the cluster sends notices."""

from typing import Any

import click
import yaml

from node.cli.api import Api, ago, api_command
from node.cli.reading import read_documents
from node.cli.text import input_text, source_name
from node.client import path


@click.group("notify")
def notify_command() -> None:
    """Manage the channels that report failures, lost members and full disks: webhooks, mail, chats."""


@notify_command.command("list")
@api_command
def list_channels_command(api: Api) -> None:
    """List the channels, and whether sending on them succeeds."""
    answer = api.client.get("/v1/channels")
    api.show(
        answer,
        lambda: api.table(
            ("CHANNEL", "KIND", "SENDER", "WAITING", "TOLD", "LAST", "STATE"),
            (
                (
                    item["name"],
                    item["definition"]["kind"],
                    item["sender"],
                    item["waiting"],
                    item["told"],
                    item["last"] and ago(item["last"]["at"]),
                    _state(item),
                )
                for item in answer["items"]
            ),
            "there are no channels; make one with: rota notify set NAME -f FILE",
        ),
    )


@notify_command.command("show")
@click.argument("channel")
@api_command
def show_channel_command(api: Api, channel: str) -> None:
    """Show a channel as YAML that `rota notify set` accepts, with its state in comments."""
    item = api.client.get(path("v1", "channels", channel))
    api.show(item, lambda: click.echo(_as_yaml(item), nl=False))


@notify_command.command("set")
@click.argument("channel")
@click.option("-f", "file", required=True, metavar="FILE", help="YAML or JSON with the channel; - for standard input.")
@api_command
def set_command(api: Api, channel: str, file: str) -> None:
    """Create or change a channel."""
    found = read_documents(source_name(file), input_text(file))
    if len(found) != 1:
        raise click.UsageError(f"{file} holds {len(found)} documents: a channel is one")
    answer = api.client.call("PUT", path("v1", "channels", channel), body=found[0])
    done = "made" if answer.status == 201 else "set"
    api.show(answer.json, f"{channel} is {done}; try it with: rota notify test {channel}")


@notify_command.command("delete")
@click.argument("channel")
@api_command
def delete_channel_command(api: Api, channel: str) -> None:
    """Delete a channel, with the notices that are not sent yet."""
    api.client.call("DELETE", path("v1", "channels", channel))
    api.show({"deleted": channel}, f"{channel} is deleted")


@notify_command.command("test")
@click.argument("channel")
@api_command
def test_command(api: Api, channel: str) -> None:
    """Send a test message now, from the node at ROTA_URL, and show the receiver's answer."""
    answer = api.client.call("POST", path("v1", "channels", channel, "test"), timeout_s=60).json
    done = f"{answer['node']} sent a test message on {channel}; the receiver answered {answer['answer']}"
    if answer["tasks"] == 0:
        done += f"\nno task has the labels of {channel} yet, so nothing is told on it: see rota notify show {channel}"
    api.show(answer, done)


@notify_command.command("digest")
@click.argument("channel")
@api_command
def digest_command(api: Api, channel: str) -> None:
    """Show what the next daily digest of a channel would say now. Nothing is sent."""
    answer = api.client.get(path("v1", "channels", channel, "digest"))
    api.show(answer, lambda: click.echo(f"{answer['title']}\n\n{answer['text']}".rstrip()))


def _state(item: dict[str, Any]) -> str:
    """Say whether sending on a channel succeeds now, how many notices were lost, and when its next digest is made."""
    if not item["definition"]["enabled"]:
        state = "off"
    elif item["failures"]:
        tries, last, since = item["failures"], item["last"], item["waiting_since"]
        waits = f", the oldest notice came {ago(since)}, next try {ago(item['retry_at'])}" if since else ""
        state = f"{tries} {'try' if tries == 1 else 'tries'} failed{waits}; from {last['node']}: {last['error']}"
    else:
        state = "ok"
    lost = [f"gave up on {item['given_up']}, last {ago(item['given_up_at'])}"] if item["given_up"] else []
    lost += [f"{item['dropped']} had no room"] if item["dropped"] else []
    lost += [f"{item['dropped_successes']} successes had no room"] if item["dropped_successes"] else []
    following = [f"next digest {ago(item['digest_next'])}"] if item["digest_next"] else []
    return "; ".join([state, *lost, *following])


def _as_yaml(item: dict[str, Any]) -> str:
    state = {name: value for name, value in item.items() if name != "definition"}
    comments = "".join(f"# {line}\n" for line in _yaml(state).splitlines())
    return _yaml(item["definition"]) + comments


def _yaml(value: Any) -> str:
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True)
