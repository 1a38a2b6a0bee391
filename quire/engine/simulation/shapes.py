"""Models known by name, for simulating without a checkpoint. Their shapes, and nothing of their weights."""

from quire.config.facts import ModelFacts

SHAPES: dict[str, ModelFacts] = {
    model.name: model
    for model in (
        ModelFacts(
            name="llama-8b",
            architecture="LlamaForCausalLM",
            num_layers=32,
            hidden_size=4096,
            num_heads=32,
            num_kv_heads=8,
            head_dim=128,
            vocab_size=128256,
            max_position=131072,
            dtype="bfloat16",
            weight_bytes={"bfloat16": 16_060_522_496},
            num_parameters=8_030_261_248,
            max_position_source="its shape",
        ),
        ModelFacts(
            name="llama-70b",
            architecture="LlamaForCausalLM",
            num_layers=80,
            hidden_size=8192,
            num_heads=64,
            num_kv_heads=8,
            head_dim=128,
            vocab_size=128256,
            max_position=131072,
            dtype="bfloat16",
            weight_bytes={"bfloat16": 141_107_412_992},
            num_parameters=70_553_706_496,
            max_position_source="its shape",
        ),
        ModelFacts(
            name="qwen3-0.6b",
            architecture="Qwen3ForCausalLM",
            num_layers=28,
            hidden_size=1024,
            num_heads=16,
            num_kv_heads=8,
            head_dim=128,
            vocab_size=151936,
            max_position=40960,
            dtype="bfloat16",
            weight_bytes={"bfloat16": 1_192_099_840},
            num_parameters=596_049_920,
            max_position_source="its shape",
        ),
    )
}
