"""An agent as Codex is one: the Responses API, streamed, nothing stored, tools that are really run, a bounded loop.

pip install openai
python examples/ecosystem/responses_agent.py         # the server: QUIRE_BASE_URL, see endpoint.py

Each turn sends the whole conversation. A small model seldom calls of its own accord, so its first turns must call
certain tools, and its last must not call; between them it is free. With a capable model, "auto" throughout is enough.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

from endpoint import API_KEY, MODEL, URL
from openai import OpenAI
from workspace import DESCRIPTIONS, MOST_TURNS, TASK, Workspace, filled_workspace, schemas


def choice_of(turn: int) -> Any:
    """Read something, write something, then do whatever seems right, and answer at last."""
    if turn < 2:
        return {"type": "function", "name": ("read", "append")[turn]}
    if turn == MOST_TURNS - 1:
        return "none"
    return "auto"


def run_agent(client: OpenAI, workspace: Workspace) -> str:
    """The answer to TASK, after as many calls as the model makes."""
    tools = [
        {"type": "function", "name": name, "description": DESCRIPTIONS[name], "parameters": schema, "strict": True}
        for name, schema in schemas(workspace).items()
    ]
    history: list[Any] = [{"role": "user", "content": TASK}]
    for turn in range(MOST_TURNS):
        with client.responses.stream(
            model=MODEL,
            instructions="You are an agent that works on files.",
            input=history,
            tools=tools,
            tool_choice=choice_of(turn),
            parallel_tool_calls=False,
            store=False,
            temperature=0,
            max_output_tokens=64,
        ) as stream:
            for event in stream:
                if event.type == "response.output_text.delta":
                    print(event.delta, end="", flush=True)
            response = stream.get_final_response()
        calls = [item for item in response.output if item.type == "function_call"]
        if not calls:
            print()
            return response.output_text
        history += [item.to_dict() for item in response.output]
        for call in calls:
            result = workspace.do(call.name, json.loads(call.arguments))
            print(f"turn {turn}: {call.name}{call.arguments} → {result.strip()}")
            history.append({"type": "function_call_output", "call_id": call.call_id, "output": result})
    raise AssertionError("the last turn may not call, and called")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, OpenAI(base_url=f"{URL}/v1", api_key=API_KEY) as client:
        workspace = filled_workspace(Path(folder))
        answer = run_agent(client, workspace)
        print("answer:", answer)
        print("files:", {name: workspace.read(name) for name in workspace.names()})


if __name__ == "__main__":
    main()
