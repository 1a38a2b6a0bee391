"""DSPy: a typed signature that the server's grammar holds, a chain of thought, and a program compiled with examples.

pip install 'dspy>=3.4'
python examples/ecosystem/dspy_program.py            # the server: QUIRE_BASE_URL, see endpoint.py
"""

import os
from typing import Literal

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else importing it fetches a price list

import dspy
from dspy.lm15 import AccessPolicy, ModelSupport, OpenAIChatCompat, ProviderDefinition, register_provider
from endpoint import API_KEY, MODEL, URL


class Sort(dspy.Signature):
    """Sort a message to the support by what it is about."""

    message: str = dspy.InputField()
    topic: Literal["billing", "delivery", "damage"] = dspy.OutputField()
    is_angry: bool = dspy.OutputField()


EXAMPLES = [
    dspy.Example(message="You charged me twice!", topic="billing", is_angry=True).with_inputs("message"),
    dspy.Example(message="The lamp arrived broken.", topic="damage", is_angry=False).with_inputs("message"),
    dspy.Example(message="When does my parcel arrive?", topic="delivery", is_angry=False).with_inputs("message"),
]


def main() -> None:
    # DSPy asks a catalogue what a model can do; one that it has never heard of needs its server declared.
    register_provider(
        ProviderDefinition.chat(AccessPolicy("quire", base_url=f"{URL}/v1"), compat=OpenAIChatCompat()),
        supports=ModelSupport(function_calling=True, response_schema=True),
    )
    lm = dspy.LM(f"quire/{MODEL}", api_key=API_KEY, temperature=0, max_tokens=200, cache=False)
    dspy.configure(lm=lm, adapter=dspy.JSONAdapter())

    sort = dspy.Predict(Sort)
    late = "My parcel has been on its way for three weeks, this is outrageous!"
    print("predict:", sort(message=late))
    print("thoughtful:", dspy.ChainOfThought(Sort)(message=late))

    compiled = dspy.LabeledFewShot(k=2).compile(sort, trainset=EXAMPLES[:2])
    evaluate = dspy.Evaluate(devset=EXAMPLES, metric=lambda example, found, trace=None: found.topic == example.topic)
    print("right before:", evaluate(sort).score, "after:", evaluate(compiled).score)


if __name__ == "__main__":
    main()
