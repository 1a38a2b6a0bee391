"""The folder that the agents of this folder work in, and the two things that they can do there."""

from pathlib import Path

LONGEST = 2000
"""Characters of a result that a model gets to read."""


class Workspace:
    """Files by name, in one folder: names that lead out of it are refused."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()

    def names(self) -> list[str]:
        return sorted(path.name for path in self._folder.iterdir() if path.is_file())

    def read(self, name: str) -> str:
        return self._path(name).read_text(encoding="utf-8")[:LONGEST]

    def append(self, name: str, text: str) -> str:
        with self._path(name).open("a", encoding="utf-8") as file:
            file.write(text + "\n")
        return f"{name} has {len(self.read(name).splitlines())} lines now"

    def do(self, tool: str, arguments: dict[str, str]) -> str:
        """Carry a call out; what goes wrong is a result too, which the model reads."""
        try:
            return self.read(arguments["name"]) if tool == "read" else self.append(arguments["name"], arguments["text"])
        except (OSError, ValueError) as error:
            return f"error: {error}"

    def _path(self, name: str) -> Path:
        path = (self._folder / name).resolve()
        if path.parent != self._folder:
            raise ValueError(f"{name!r} is not in the workspace")
        return path


def filled_workspace(folder: Path) -> Workspace:
    """Two files, something to read and something to write to."""
    (folder / "report.txt").write_text("Sales in March: 120 chairs, 14 tables.\n", encoding="utf-8")
    (folder / "todo.txt").write_text("- order wood\n", encoding="utf-8")
    return Workspace(folder)


def schemas(workspace: Workspace) -> dict[str, dict[str, object]]:
    """What the arguments of each tool are; a grammar holds the model to them, also to the names of files that exist."""
    name = {"type": "string", "enum": workspace.names()}
    text = {"type": "string", "maxLength": 40}
    return {
        "read": {
            "type": "object",
            "properties": {"name": name},
            "required": ["name"],
            "additionalProperties": False,
        },
        "append": {
            "type": "object",
            "properties": {"name": name, "text": text},
            "required": ["name", "text"],
            "additionalProperties": False,
        },
    }


DESCRIPTIONS = {"read": "Read a file.", "append": "Append a line to a file."}
TASK = "Read report.txt, then append to todo.txt what should be done about it."
MOST_TURNS = 4
"""Of the model; the last one is for its answer, so that the loop ends."""
