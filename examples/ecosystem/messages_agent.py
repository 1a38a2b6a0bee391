"""An agent as Claude Code is one: the Messages API, streamed, tools that are really run, a bounded loop.

pip install anthropic
python examples/ecosystem/messages_agent.py          # the server: QUIRE_BASE_URL, see endpoint.py

Each turn sends the whole conversation. A small model seldom calls of its own accord, so its first turns must call
certain tools, and its last must not call; between them it is free. With a capable model, "auto" throughout is enough.
Claude Code itself works with ANTHROPIC_BASE_URL and a model whose context holds its prompts: see "Names of the model"
in docs/server.md.
"""

import tempfile
from pathlib import Path
from typing import Any

from anthropic import Anthropic
from endpoint import API_KEY, MODEL, URL
from workspace import DESCRIPTIONS, MOST_TURNS, TASK, Workspace, filled_workspace, schemas


def choice_of(turn: int) -> Any:
    """Read something, write something, then do whatever seems right, and answer at last."""
    if turn < 2:
        return {"type": "tool", "name": ("read", "append")[turn]}
    if turn == MOST_TURNS - 1:
        return {"type": "none"}
    return {"type": "auto", "disable_parallel_tool_use": True}


def run_agent(client: Anthropic, workspace: Workspace) -> str:
    """The answer to TASK, after as many calls as the model makes."""
    tools: list[Any] = [
        {"name": name, "description": DESCRIPTIONS[name], "input_schema": schema, "strict": True}
        for name, schema in schemas(workspace).items()
    ]
    history: list[Any] = [{"role": "user", "content": TASK}]
    for turn in range(MOST_TURNS):
        with client.messages.stream(
            model=MODEL,
            system="You are an agent that works on files.",
            messages=history,
            tools=tools,
            tool_choice=choice_of(turn),
            max_tokens=64,
        ) as stream:
            for text in stream.text_stream:
                print(text, end="", flush=True)
            message = stream.get_final_message()
        if message.stop_reason != "tool_use":
            print()
            return "".join(block.text for block in message.content if block.type == "text")
        history.append(message.to_param())
        results: list[Any] = []
        for block in message.content:
            if block.type == "tool_use":
                result = workspace.do(block.name, block.input)
                print(f"turn {turn}: {block.name}{block.input} → {result.strip()}")
                results.append({"type": "tool_result", "tool_use_id": block.id, "content": result})
        history.append({"role": "user", "content": results})
    raise AssertionError("the last turn may not call, and called")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, Anthropic(base_url=URL, api_key=API_KEY) as client:
        workspace = filled_workspace(Path(folder))
        answer = run_agent(client, workspace)
        print("answer:", answer)
        print("files:", {name: workspace.read(name) for name in workspace.names()})


if __name__ == "__main__":
    main()
