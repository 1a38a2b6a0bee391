"""The offline interface, from text to text, on a tiny model with random weights."""

import math
from pathlib import Path

import pytest
import torch

import quire
from quire import LLM, BeamSearchParams, ConfigError, InvalidRequest, SamplingParams
from tests.tiny_model import make_text_model

GREEDY = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory):
    return make_text_model(tmp_path_factory.mktemp("llm"))


@pytest.fixture(scope="module")
def llm(tiny):
    model = LLM(str(tiny.path), dtype="float32", block_size=4, num_gpu_blocks_override=512)
    yield model
    model.close()


def generate(llm: LLM, *args, **kwargs):
    return llm.generate(*args, use_tqdm=False, **kwargs)


def test_the_public_names_are_there():
    assert all(getattr(quire, name) is not None for name in quire.__all__)
    with pytest.raises(AttributeError, match="no attribute 'LLLM'"):
        _ = quire.LLLM


def test_greedy_text_equals_the_oracle(llm, tiny):
    [output] = generate(llm, "hello there", GREEDY)
    expected, _ = tiny.greedy(llm.get_tokenizer().encode("hello there"), 12)
    [completion] = output.outputs
    assert completion.token_ids == expected
    assert completion.text == llm.get_tokenizer().decode(expected)
    assert (completion.finish_reason, output.finished, output.prompt) == ("length", True, "hello there")
    assert output.metrics.first_token_time <= output.metrics.finished_time


def test_making_ready_does_all_there_is_and_changes_no_answer(llm, monkeypatch):
    params = SamplingParams(temperature=0, max_tokens=4)
    before = llm.generate("one two", params, use_tqdm=False)[0].outputs[0].token_ids
    left = [True, True, False]
    loop = llm._engine.loop
    monkeypatch.setattr(loop, "warm_up", lambda: left.pop(0))
    llm.warm_up()
    assert left == []
    monkeypatch.undo()
    llm.warm_up()
    assert llm.generate("one two", params, use_tqdm=False)[0].outputs[0].token_ids == before


def test_prompts_come_in_every_form_and_keep_their_order(llm):
    ids = llm.get_tokenizer().encode("abc")
    forms = ["abc", ids, {"prompt": "abc"}, {"prompt_token_ids": ids}]
    outputs = generate(llm, forms, GREEDY)
    assert len({tuple(output.outputs[0].token_ids) for output in outputs}) == 1
    assert len(generate(llm, ids, GREEDY)) == 1


def test_parameters_for_each_prompt(llm):
    params = [SamplingParams(temperature=0.0, max_tokens=count, ignore_eos=True) for count in (3, 5)]
    assert [len(output.outputs[0].token_ids) for output in generate(llm, ["a", "b"], params)] == [3, 5]
    with pytest.raises(InvalidRequest, match="there are 3 prompts and 2 sampling parameters"):
        generate(llm, ["a", "b", "c"], params)


def test_a_bad_prompt_leaves_nothing_running(llm):
    with pytest.raises(InvalidRequest, match=r"token id 5000 in the prompt is out of vocabulary, which ends at 198"):
        generate(llm, ["fine", [1, 5000]], GREEDY)
    with pytest.raises(InvalidRequest, match="it needs prompt or prompt_token_ids"):
        generate(llm, [{"text": "x"}], GREEDY)
    assert not llm._engine.has_work
    assert generate(llm, "fine", GREEDY)[0].finished


def test_seeds_give_the_same_text_alone_in_company_and_after_preemption(tiny, llm):
    params = SamplingParams(temperature=1.0, seed=7, max_tokens=20, ignore_eos=True)
    [alone] = generate(llm, "once", params)
    others = [f"other {number}" for number in range(63)]
    among = generate(llm, ["once", *others], params)[0]
    small = LLM(str(tiny.path), dtype="float32", block_size=4, num_gpu_blocks_override=40, max_model_len=64)
    crowded = generate(small, ["once", *others[:12]], params)[0]
    assert small._engine.loop.scheduler.stats.preempted_recompute > 0
    assert alone.outputs[0].token_ids == among.outputs[0].token_ids == crowded.outputs[0].token_ids
    assert (
        alone.outputs[0].token_ids != generate(llm, "once", SamplingParams(temperature=1.0, seed=8, max_tokens=20))[0]
    )


def test_several_samples_share_the_prompt_and_differ(llm):
    params = SamplingParams(n=4, temperature=1.0, seed=1, max_tokens=8, ignore_eos=True)
    [output] = generate(llm, "x" * 40, params)
    assert [completion.index for completion in output.outputs] == [0, 1, 2, 3]
    assert len({tuple(completion.token_ids) for completion in output.outputs}) == 4


def test_best_of_returns_the_likeliest(llm):
    sampled = SamplingParams(n=4, temperature=1.0, seed=1, max_tokens=8, ignore_eos=True, logprobs=0)
    best = SamplingParams(n=1, best_of=4, temperature=1.0, seed=1, max_tokens=8, ignore_eos=True)
    everyone = generate(llm, "pick one", sampled)[0].outputs
    [chosen] = generate(llm, "pick one", best)[0].outputs
    assert chosen.token_ids == max(everyone, key=lambda completion: completion.cumulative_logprob).token_ids


def test_stop_strings_end_the_text_across_tokens(llm):
    text = generate(llm, "hello there", GREEDY)[0].outputs[0].text
    stop = text[4:6]
    params = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True, stop=stop)
    [completion] = generate(llm, "hello there", params)[0].outputs
    assert completion.text == text[: text.index(stop)]
    assert (completion.finish_reason, completion.stop_reason) == ("stop", stop)
    kept = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True, stop=stop, include_stop_str_in_output=True)
    assert generate(llm, "hello there", kept)[0].outputs[0].text == text[: text.index(stop)] + stop


def test_stop_token_ids_end_it_and_are_named(llm):
    tokens = generate(llm, "hello there", GREEDY)[0].outputs[0].token_ids
    params = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True, stop_token_ids=[tokens[3]])
    [completion] = generate(llm, "hello there", params)[0].outputs
    assert completion.token_ids == tokens[: tokens.index(tokens[3]) + 1]
    assert (completion.finish_reason, completion.stop_reason) == ("stop", tokens[3])


def test_bad_words_never_appear(llm):
    tokenizer = llm.get_tokenizer()
    unwanted = tokenizer.decode([generate(llm, "hello there", GREEDY)[0].outputs[0].token_ids[0]])
    params = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True, bad_words=[unwanted])
    assert unwanted not in generate(llm, "hello there", params)[0].outputs[0].text


def test_logprobs_of_output_and_prompt_equal_the_oracle(llm, tiny):
    params = SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True, logprobs=3, prompt_logprobs=2)
    for _ in range(2):  # the second time the prompt is in the prefix cache, and must be computed all the same
        [output] = generate(llm, "hello there", params)
        ids = output.prompt_token_ids
        with torch.no_grad():
            expected = torch.log_softmax(tiny.oracle(torch.tensor([ids])).logits[0].float(), dim=-1)
        assert output.prompt_logprobs is not None
        assert output.prompt_logprobs[0] is None
        for position in range(1, len(ids)):
            found = output.prompt_logprobs[position][ids[position]]
            assert found.logprob == pytest.approx(expected[position - 1, ids[position]].item(), abs=1e-4)
        [completion] = output.outputs
        first = completion.logprobs[0]
        assert len(first) == 3
        assert first[completion.token_ids[0]].rank == 1
        assert math.exp(first[completion.token_ids[0]].logprob) <= 1.0
        assert completion.cumulative_logprob == pytest.approx(
            sum(found[token].logprob for found, token in zip(completion.logprobs, completion.token_ids, strict=True))
        )


def test_chat_uses_the_template(llm):
    messages = [{"role": "user", "content": "hi"}]
    [output] = llm.chat(messages, GREEDY, use_tqdm=False)
    assert llm.get_tokenizer().decode(output.prompt_token_ids) == "<user>hi|<assistant>"
    assert len(llm.chat([messages, messages], GREEDY, use_tqdm=False)) == 2


@pytest.mark.parametrize("early", [False, True])
def test_beam_search_equals_the_oracle(llm, tiny, early):
    prompt = llm.get_tokenizer().encode("abcdef")
    params = BeamSearchParams(beam_width=3, max_tokens=8, early_stopping=early)
    [found] = llm.beam_search([prompt], params)
    with torch.no_grad():
        expected = tiny.oracle.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            num_beams=3,
            num_return_sequences=3,
            max_new_tokens=8,
            early_stopping=early,
            eos_token_id=2,
            pad_token_id=0,
            do_sample=False,
            output_scores=True,
            return_dict_in_generate=True,
        )
    for beam, tokens, score in zip(found.sequences, expected.sequences, expected.sequences_scores, strict=True):
        assert beam.tokens == [token for token in tokens.tolist() if token != 0]
        assert beam.cum_logprob == pytest.approx(score.item(), abs=1e-4)


def test_an_unknown_setting_is_refused(tiny):
    with pytest.raises(ConfigError, match=r"unknown setting 'max_num_seq'. Did you mean 'max_num_seqs'\?"):
        LLM(str(tiny.path), max_num_seq=2)


def test_n_8_on_a_long_prompt_needs_little_more_than_one(llm):
    def blocks_at_first_token(n: int) -> int:
        engine = llm._engine
        engine.add([5] * 200, SamplingParams(n=n, temperature=1.0, seed=3, max_tokens=2, use_prefix_cache=False))
        used = 0
        while engine.has_work:
            engine.step()
            used = max(used, engine.loop.scheduler.kv.usage().used_blocks)
        return used

    assert blocks_at_first_token(8) < 1.3 * blocks_at_first_token(1)


def test_the_start_up_log_says_what_was_chosen_and_why(tiny, caplog):
    with caplog.at_level("INFO", logger="quire"):
        LLM(str(tiny.path), num_gpu_blocks_override=64, lazy_loading=False).close()
    [record] = [record for record in caplog.records if record.message.startswith("starting ")]
    assert "num_gpu_blocks" in record.message
    assert "asked for" in record.message


def test_a_missing_model_is_one_clear_error():
    with pytest.raises(quire.CheckpointError, match="there is no file or folder"):
        LLM(str(Path("/nowhere/at/all")))
