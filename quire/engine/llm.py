"""LLM: the offline interface. Names and shapes follow vLLM's, so that its examples run after changing the import."""

from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from quire.config.engine import EngineConfig
from quire.config.model import DEFAULT_MODEL
from quire.core.adapter import LoRARequest
from quire.core.errors import ConfigError, InvalidRequest
from quire.core.media import MediaItem
from quire.core.outputs import (
    BeamSearchOutput,
    BeamSearchSequence,
    ClassificationRequestOutput,
    EmbeddingRequestOutput,
    PoolingRequestOutput,
    RequestOutput,
    ScoringRequestOutput,
)
from quire.core.pooling import Pooling, PoolingTask
from quire.core.sampling_params import SamplingParams
from quire.core.transcript import Transcript
from quire.engine.beam_search import BeamSearchParams, beam_search
from quire.engine.chat_media import render_chat, with_sources
from quire.engine.embedding import Embeddings
from quire.engine.engine import Engine, start_engine
from quire.engine.progress import Progress
from quire.engine.transcribing import Audio, Transcriber
from quire.models.loading.locate import locate
from quire.multimodal.fetch import MediaFetcher
from quire.multimodal.offline import files_of
from quire.multimodal.processor import IMAGE_ALONE
from quire.multimodal.reader import MediaFile
from quire.protocol.openai.fields import Fields
from quire.protocol.openai.thinking_fields import read_reasoning_options
from quire.protocol.openai.tools import check_tools, read_tools
from quire.protocol.parsers.style import AnswerStyle
from quire.text.chat_template import ChatTemplate
from quire.text.labels import only_pools
from quire.text.load import load_chat_template
from quire.text.template_pool import TemplatePool
from quire.text.tokenizer import Tokenizer

Prompt = str | list[int] | Mapping[str, Any]
"""Text, token ids, or `{"prompt": text}` / `{"prompt_token_ids": ids}`, which may have `"multi_modal_data"` beside it:
`{"image": …, "video": …}`, bytes, a path or a Pillow image or, of videos, an array of frames, or a list of them."""
Messages = list[dict[str, Any]]


class LLM:
    """A model in this process. Every setting of the command line is a keyword argument here."""

    def __init__(
        self, model: str = DEFAULT_MODEL, *, seed: int = 0, chat_template: str | None = None, **settings: object
    ) -> None:
        config = EngineConfig.from_flat(model=model, **settings)
        self._path = locate(config.model.model, config.model.revision)
        self._started, _ = start_engine(config, seed=seed, may_only_read=True)
        self._template_file = None if chat_template is None else Path(chat_template)
        self._template: ChatTemplate | None = None
        self._parsers = config.parsers
        self._style: AnswerStyle | None = None
        self._templates = TemplatePool()
        self._fetcher = MediaFetcher(config.multimodal)

    def warm_up(self) -> None:
        """Compile kernels and capture graphs now, so that no answer waits for them.

        Takes half a minute on a GPU and nothing on a CPU; a server does it while it has no requests.
        """
        while self._started.loop.warm_up():
            pass

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
        lora_request: LoRARequest | Sequence[LoRARequest | None] | None = None,
    ) -> list[RequestOutput]:
        """Answers in the order of the prompts. One set of parameters serves all; a list gives each its own.

        So it is with `lora_request`, the LoRA adapters to answer with; None is the model as it is.
        """
        several = [
            (_plain(prompt), files_of(prompt.get("multi_modal_data")) if isinstance(prompt, Mapping) else [])
            for prompt in _as_list(prompts)
        ]
        return self._answers(several, sampling_params, lora_request, use_tqdm)

    def _answers(
        self,
        several: Sequence[tuple[str | list[int], list[MediaFile]]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None,
        lora_request: LoRARequest | Sequence[LoRARequest | None] | None,
        use_tqdm: bool,
    ) -> list[RequestOutput]:
        """To prompts, each with the files that its marks stand for."""
        chosen = _for_each(sampling_params, len(several))
        adapters = _adapter_for_each(lora_request, len(several))
        # all or nothing: a bad prompt in a list must not leave the others running
        ids: list[str] = []
        try:
            for (prompt, files), params, adapter in zip(several, chosen, adapters, strict=True):
                ids.append(self._engine.add(prompt, params, adapter=adapter, files=files))
        except BaseException:
            for request_id in ids:
                self._engine.abort(request_id)
            self._run(Progress(0, enabled=False))
            raise
        outputs = self._run(Progress(len(ids), enabled=use_tqdm))
        return [outputs[request_id] for request_id in ids]

    def chat(
        self,
        messages: Messages | Sequence[Messages],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        tool_choice: str | Mapping[str, Any] | None = None,
        parallel_tool_calls: bool = True,
        reasoning_effort: str | None = None,
        thinking_token_budget: int | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        lora_request: LoRARequest | Sequence[LoRARequest | None] | None = None,
    ) -> list[RequestOutput]:
        """Like `generate`, for conversations. Each output's `message` has its thinking, content and tool calls.

        Tools and what is said about them are as in a body of /v1/chat/completions, and so are parts of messages that
        are images or sound; `image_pil` parts hold an image of Pillow's.
        """
        asked = {
            "tools": None if tools is None else [dict(tool) for tool in tools],
            "tool_choice": dict(tool_choice) if isinstance(tool_choice, Mapping) else tool_choice,
            "parallel_tool_calls": parallel_tool_calls,
            "reasoning_effort": reasoning_effort,
            "thinking_token_budget": thinking_token_budget,
        }
        fields = Fields(asked, known=asked)
        offered, reasoning_options = read_tools(fields), read_reasoning_options(fields)
        conversations: list[Messages] = [messages] if messages and isinstance(messages[0], dict) else list(messages)  # type: ignore[arg-type, list-item]
        template = self.chat_template()
        check_tools(offered, template.accepts)
        self._engine.check_tools(offered)
        render = partial(
            template.render,
            tools=offered.for_template(),
            documents=documents,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            variables={**reasoning_options.variables(template.accepts), **(chat_template_kwargs or {})},
        )
        tokenizer = self.get_tokenizer()
        rendered = [
            render_chat(with_sources(conversation), render, tokenizer, self._engine.media, self._fetcher)
            for conversation in conversations
        ]
        prepared = [
            self.answer_style().prepare(each.text, params, offered, reasoning_options)
            for each, params in zip(rendered, _for_each(sampling_params, len(rendered)), strict=True)
        ]
        chosen = [params for _, params in prepared]
        prompts: list[tuple[str | list[int], list[MediaFile]]] = [(each.tokens, each.files) for each in rendered]
        outputs = self._answers(prompts, chosen, lora_request, use_tqdm)
        for (reading, _), output in zip(prepared, outputs, strict=True):
            for sequence in output.outputs:
                sequence.message = reading.message(sequence.index, sequence.text, sequence.finish_reason)
        return outputs

    def beam_search(self, prompts: Prompt | Sequence[Prompt], params: BeamSearchParams) -> list[BeamSearchOutput]:
        """The best `beam_width` continuations of every prompt, best first."""
        tokens = [tuple(self._engine.encode(_plain(prompt))) for prompt in _as_list(prompts)]
        found = beam_search(self._engine.loop, tokens, params, self.get_tokenizer().eos_token_ids)
        decode = self.get_tokenizer().decode
        return [
            BeamSearchOutput(
                [
                    BeamSearchSequence([*prompt, *beam.tokens], beam.score, decode([*prompt, *beam.tokens]))
                    for beam in beams
                ]
            )
            for prompt, beams in zip(tokens, found, strict=True)
        ]

    def embed(
        self,
        prompts: Prompt | Sequence[Prompt],
        *,
        pooling: Pooling | None = None,
        normalize: bool = True,
        truncate_prompt_tokens: int | None = None,
        prompt_name: str | None = None,
    ) -> list[EmbeddingRequestOutput]:
        """A vector for every prompt; by the pooling the model was made for unless another is named.

        `prompt_name` is one of the prompts that sentence-transformers' files give the model, put before every text.
        Models of texts and images alike take `{"prompt": "", "multi_modal_data": {"image": …}}` too.
        """
        read = [self._embedded(prompt) for prompt in _as_list(prompts)]
        return self._embeddings.embed(
            [prompt for prompt, _ in read],
            media=[items for _, items in read],
            pooling=pooling,
            normalize=normalize,
            truncate_prompt_tokens=truncate_prompt_tokens,
            prompt_name=prompt_name,
        )

    def _embedded(self, prompt: Prompt) -> tuple[str | list[int], tuple[MediaItem, ...]]:
        """A text; or an image alone, as a prompt of one token."""
        files = files_of(prompt.get("multi_modal_data")) if isinstance(prompt, Mapping) else []
        if not files:
            return _plain(prompt), ()
        if self._started.model.spec.joint is None:
            raise InvalidRequest(f"{self._path} embeds texts alone; leave images out", field="multi_modal_data")
        if len(files) > 1 or (isinstance(prompt, Mapping) and prompt.get("prompt")):
            raise InvalidRequest(
                "a text and an image, or two images, have a vector each; give them as prompts of their own",
                field="multi_modal_data",
            )
        return self._started.media().read([IMAGE_ALONE], files)

    def classify(
        self,
        prompts: Prompt | Sequence[Prompt],
        *,
        use_activation: bool = True,
        truncate_prompt_tokens: int | None = None,
    ) -> list[ClassificationRequestOutput]:
        """The probabilities of a classifier's labels for every prompt."""
        return self._embeddings.classify(
            _all_plain(prompts), use_activation=use_activation, truncate_prompt_tokens=truncate_prompt_tokens
        )

    def encode(
        self,
        prompts: Prompt | Sequence[Prompt],
        *,
        pooling_task: PoolingTask | None = None,
        pooling: Pooling | None = None,
        normalize: bool | None = None,
        use_activation: bool | None = None,
        truncate_prompt_tokens: int | None = None,
        prompt_name: str | None = None,
    ) -> list[PoolingRequestOutput]:
        """What a task reads off every prompt: embed, token_embed, classify, score or reward.

        Left out, it is classify for a classifier and token_embed, a vector for every token, for other models.
        """
        return self._embeddings.encode(
            _all_plain(prompts),
            pooling_task=pooling_task,
            pooling=pooling,
            normalize=normalize,
            use_activation=use_activation,
            truncate_prompt_tokens=truncate_prompt_tokens,
            prompt_name=prompt_name,
        )

    def reward(
        self, prompts: Prompt | Sequence[Prompt], *, truncate_prompt_tokens: int | None = None
    ) -> list[PoolingRequestOutput]:
        """A reward model's raw scores of every prompt."""
        return self.encode(prompts, pooling_task="reward", truncate_prompt_tokens=truncate_prompt_tokens)

    def score(
        self,
        text_1: str | Sequence[str],
        text_2: str | Sequence[str],
        *,
        use_activation: bool | None = None,
        truncate_prompt_tokens: int | None = None,
        instruction: str | None = None,
    ) -> list[ScoringRequestOutput]:
        """How well texts fit together, pair by pair, or one text with each of several.

        A cross-encoder (a classifier with one label) reads both texts at once, and `use_activation` False leaves its
        number as it is; of other models it is the cosine of the texts' embeddings. `instruction` says what a document
        is to do for a query, in Qwen3-Reranker's own prompt.
        """
        return self._embeddings.score(
            text_1,
            text_2,
            use_activation=use_activation,
            truncate_prompt_tokens=truncate_prompt_tokens,
            instruction=instruction,
        )

    def transcribe(
        self,
        audio: Audio | Sequence[Audio],
        *,
        language: str | None = None,
        task: Literal["transcribe", "translate"] = "transcribe",
        prompt: str | None = None,
        temperature: float | Sequence[float] | None = None,
        condition_on_previous_text: bool = True,
        seed: int | None = None,
        word_timestamps: bool = False,
    ) -> list[Transcript]:
        """What is said in each file: paths, or files' bytes. Windows of all files are computed together.

        Without a temperature, or with several, the next is tried where a text repeats itself or the model doubts it.
        With `word_timestamps` each segment has `words`, with their `start` and `end`.
        """
        files = [audio] if isinstance(audio, str | bytes | PathLike) else list(audio)
        found = self._transcriber.transcribe(
            files,
            language=language,
            translate=task == "translate",
            prompt=prompt,
            temperature=temperature,
            condition_on_previous_text=condition_on_previous_text,
            seed=seed,
            words=word_timestamps,
        )
        by_place = dict(found)
        return [by_place[place] for place in range(len(files))]

    def get_tokenizer(self) -> Tokenizer:
        """The model's tokenizer, which is quire's own type."""
        tokenizer = self._started.tokenizer
        if tokenizer is None:
            raise ConfigError("the model was loaded without its tokenizer; leave skip_tokenizer out")
        return tokenizer

    def chat_template(self) -> ChatTemplate:
        """The model's chat template, or the one that was given."""
        if self._template is None:
            self._template = load_chat_template(
                self._path,
                self.get_tokenizer(),
                self._templates,
                file=self._template_file,
                tools=self._parsers.tools_shown,
            )
        return self._template

    def answer_style(self) -> AnswerStyle:
        """How the model writes tool calls and thinking."""
        if self._style is None:
            self._style = AnswerStyle(self.chat_template().signs, self.get_tokenizer(), self._parsers)
        return self._style

    def sleep(self, level: int = 1) -> None:
        """Give memory back: 1 keeps the weights in host memory, or in the file they are mapped from; 2 drops them.

        The next call that needs the model wakes it up, as `wake_up` does. Prefixes are forgotten unless they are on a
        disk (`kv_disk_path`).
        """
        if level not in (1, 2):
            raise InvalidRequest(f"level is {level}; it must be 1 or 2.", field="level")
        loop = self._started.loop
        while loop.has_work and not loop.scheduler.live_requests:
            self._started.step()  # releases the rows of requests that have ended
        loop.sleep(2 if level == 2 else 1)

    def wake_up(self) -> None:
        """Have the model ready before it is needed."""
        self._started.loop.wake_up()

    @property
    def is_sleeping(self) -> bool:
        """Whether `sleep` gave its memory back."""
        return self._started.loop.sleep_level > 0

    def close(self) -> None:
        """Free the model's memory. Safe to call twice."""
        self._started.close()
        self._templates.close()
        if "_transcriber" in self.__dict__:
            self._transcriber.close()

    @cached_property
    def _transcriber(self) -> Transcriber:
        return Transcriber(self._started, self._path)

    @cached_property
    def _embeddings(self) -> Embeddings:
        return self._started.embeddings(self._path)

    @property
    def _engine(self) -> Engine:
        model = self._started.model
        if only_pools(model):
            kind = "a classifier: it sorts" if model.labels else "an encoder: it embeds"
            use = "classify or score" if model.labels else "embed or score"
            raise InvalidRequest(f"{self._path} is {kind} texts and generates none; use {use}")
        return self._started

    def _run(self, progress: Progress) -> dict[str, RequestOutput]:
        outputs: dict[str, RequestOutput] = {}
        with progress:
            while self._engine.has_work:
                for output in self._engine.step():
                    outputs[output.request_id] = output
                    progress.finished(output)
        return outputs


def _as_list(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """One prompt or several: a list of whole numbers is one prompt."""
    if isinstance(prompts, str | Mapping):
        return [prompts]
    several: list[Any] = list(prompts)
    if several and all(isinstance(token, int) for token in several):
        return [several]
    return several


def _all_plain(prompts: Prompt | Sequence[Prompt]) -> list[str | list[int]]:
    return [_plain(prompt) for prompt in _as_list(prompts)]


def _plain(prompt: Prompt) -> str | list[int]:
    if not isinstance(prompt, Mapping):
        return prompt
    for name in ("prompt_token_ids", "prompt"):
        if prompt.get(name) is not None:
            found: str | list[int] = prompt[name]
            return found
    raise InvalidRequest(
        f"a prompt has the keys {', '.join(map(str, prompt)) or 'none'}; it needs prompt or prompt_token_ids",
        field="prompt",
    )


def _adapter_for_each(asked: LoRARequest | Sequence[LoRARequest | None] | None, count: int) -> list[LoRARequest | None]:
    if asked is None or isinstance(asked, LoRARequest):
        return [asked] * count
    if len(asked) != count:
        raise InvalidRequest(
            f"{len(asked)} adapters were given for {count} prompts; give one, or one each", field="lora_request"
        )
    return list(asked)


def _for_each(params: SamplingParams | Sequence[SamplingParams] | None, number: int) -> list[SamplingParams]:
    if params is None or isinstance(params, SamplingParams):
        return [params or SamplingParams()] * number
    if len(params) != number:
        raise InvalidRequest(
            f"there are {number} prompts and {len(params)} sampling parameters; give one for each, or one for all",
            field="sampling_params",
        )
    return list(params)
