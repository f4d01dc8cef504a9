import json
from pathlib import Path


class Writer:
    def __init__(self, name):
        self.path = Path(f"{name}.jsonl")

    def scalar(self, name, value, step):
        with self.path.open("a") as file:
            file.write(json.dumps({"name": name, "value": value.item(), "step": step}) + "\n")  # planted: HL201
