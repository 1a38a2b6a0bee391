"""RecordedModel: a decoder whose layers run as one program of the native CPU core."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from quire.core.expert_load import ExpertLoad
from quire.layers.batch import Batch, KVLayer, Taps
from quire.layers.embedding import Embedding
from quire.layers.image_attention import ImageAttention
from quire.layers.quant.packed import PackedWeight
from quire.layers.rope import Rope
from quire.models.heads.draft_head import DraftHead
from quire.models.language_model import LanguageModel
from quire.ops.cpu.tape import References, Tape, TapeInput, TapeProgram, Value
from quire.ops.lora_tensors import AdapterRows
from quire.worker.core_model import CoreModel, CorePrograms, tap_name
from quire.worker.core_record import CoreRecord, RecordedMatrix, RecordedRope, code_version

if TYPE_CHECKING:
    from quire.ops.cpu import _core


class RecordedModel:
    """Called like the decoder; records it when it is first called, as by then all its weights must be there."""

    def __init__(
        self,
        model: LanguageModel | DraftHead,
        kv: Sequence[KVLayer],
        machine: "_core.Machine",
        keep: Callable[[CoreRecord], None] | None = None,
        num_adapter_slots: int = 0,
        taps: Sequence[int] = (),
    ) -> None:
        """`keep` is given what was recorded, where that is all there is to the model; of `num_adapter_slots` rows may
        each have a LoRA adapter, 0: there are none. Every batch wants what enters the layers in `taps`.
        """
        self._taps = tuple(taps)
        self._num_adapter_slots = num_adapter_slots
        self._no_adapters = torch.full((1,), -1, dtype=torch.int32)
        self._model = model
        self._kv = list(kv)
        self._machine = machine
        self._keep = keep
        self._references = References()
        self._program: TapeProgram | None = None
        self._head: TapeProgram | None = None
        self._vocabulary = 0
        self._num_sequences = torch.zeros((), dtype=torch.int64)
        """What the program reads it from; runs do not overlap."""

    def __call__(self, input_ids: Tensor, positions: Tensor, batch: Batch) -> Tensor:
        """Hidden states [tokens, hidden] after the last norm."""
        if self._program is None:
            self._model.gate.wait_for_all()
        assert isinstance(self._model, LanguageModel), "a head is given more than tokens"
        if batch.embeddings is not None and (batch.embeddings.deep or isinstance(batch.attend, ImageAttention)):
            # what is added between layers, and another attention, the program has not
            computed: Tensor = self._model(input_ids, positions, batch)
            return computed.float()
        return self.run(self._model.embed(input_ids, positions, batch).float(), positions, batch)

    def run(self, x: Tensor, positions: Tensor, batch: Batch) -> Tensor:
        """What the layers make of float32 `x` [tokens, width]."""
        if self._program is None:
            shared = (self._references, self._num_adapter_slots, self._taps)
            self._program = record(self._model, self._kv, x.shape[1], *shared)
        hidden = torch.empty((x.shape[0], self._model.spec.hidden_size))
        self._num_sequences.fill_(len(batch.lengths))
        given = {
            "x": x,
            "hidden": hidden,
            "starts": batch.query_starts,
            "lengths": batch.lengths,
            "num_sequences": self._num_sequences,
            "adapters": self._slots(batch.adapters, x.shape[0]),
        }
        temperatures = self._temperatures(positions)
        if temperatures is not None:
            given["temperatures"] = temperatures
        for number, (cos, sin) in enumerate(self._model.angles(positions, batch.lengths_for_angles)):
            given[f"cos {number}"], given[f"sin {number}"] = cos, sin
        for number, (table, slots) in enumerate(zip(batch.tables, batch.slots, strict=True)):
            given[f"table {number}"], given[f"slots {number}"] = table.to(torch.int32).contiguous(), slots
        for layer in self._taps:
            given[tap_name(layer)] = tapped = torch.empty_like(hidden)
            if batch.taps is not None:
                batch.taps.values[layer] = tapped
        self._program.run(self._machine, x.shape[0], given, batch.prompts)
        return hidden

    def expert_load(self) -> ExpertLoad | None:
        """Since the start; None: it has no experts, or has not run."""
        return None if self._program is None else self._program.linked.expert_load()

    def _temperatures(self, positions: Tensor) -> Tensor | None:
        """What the program multiplies queries by; None: nothing."""
        return self._model.temperatures(positions) if isinstance(self._model, LanguageModel) else None

    def _slots(self, adapters: AdapterRows | None, count: int) -> Tensor:
        """The adapter of each row, as programs read it."""
        if adapters is not None:
            return adapters.slots.contiguous()
        if len(self._no_adapters) < count:
            self._no_adapters = torch.full((count,), -1, dtype=torch.int32)
        return self._no_adapters

    def logits(self, hidden: Tensor, prompts: range = range(0), adapters: AdapterRows | None = None) -> Tensor:
        """[rows, vocabulary] of hidden states that a call gave, one or more; `prompts` of them are of prompts."""
        if self._head is None:
            references, slots = self._references, self._num_adapter_slots
            self._head, self._vocabulary = record_head(self._model, hidden.shape[1], references, slots)
            self._keep_record(hidden.shape[1])
        logits = torch.empty((hidden.shape[0], self._vocabulary))
        given = {"hidden": hidden, "logits": logits, "adapters": self._slots(adapters, len(hidden))}
        self._head.run(self._machine, hidden.shape[0], given, prompts)
        return self._model.finish_logits(logits)

    def core_model(self) -> CoreModel | None:
        """The same programs for steps that are numpy's arrays; None before the first step has recorded them, and where
        they are not all there is to the model."""
        alone = self._alone()
        if alone is None or self._program is None or self._head is None or self._num_adapter_slots:
            return None
        words, ropes = alone
        spec = self._model.spec
        programs = CorePrograms(
            layers=self._program.linked,
            head=self._head.linked,
            words=cast(PackedWeight, words.weight).packed.only.core,
            word_scale=spec.embedding.scale,
            ropes=[(frequencies.numpy(), factor) for frequencies, factor in ropes],
            hidden_size=spec.hidden_size,
            num_logits=self._vocabulary,
            logit_scale=spec.logit_scale,
            taps=self._taps,
        )
        return CoreModel(programs, self._machine)

    def _alone(self) -> tuple[Embedding, list[tuple[Tensor, float]]] | None:
        """What tokens are looked up in, and what angles follow from, where beside that the programs are all there is to
        the model; else None."""
        if not isinstance(self._model, LanguageModel) or self._model.words_alone is None:
            return None
        ropes = [cast(Rope, rope).fixed for rope in self._model.ropes]
        fixed = [rope for rope in ropes if rope is not None]
        spec = self._model.spec
        is_all = len(fixed) == len(ropes) and (spec.logit_softcap, spec.temperature) == (None, None)
        return (self._model.words_alone, fixed) if is_all else None

    def _keep_record(self, width: int) -> None:
        """The cache is that of the recorded layers."""
        alone = self._alone()
        if self._keep is None or self._program is None or self._head is None or alone is None:
            return
        words, fixed = alone
        table = cast(PackedWeight, words.weight).packed.only
        weights, matrices = list(self._references.weights), [*self._references.matrices, table]
        recorded: list[RecordedMatrix] = []
        for matrix in matrices:
            if matrix.bias is not None:
                weights.append(matrix.bias)
            bias = None if matrix.bias is None else len(weights) - 1
            recorded.append(RecordedMatrix(matrix.name, matrix.form, bias))
        layers = {layer.keys.data_ptr(): number for number, layer in enumerate(self._kv)}
        self._keep(
            CoreRecord(
                made_by=code_version(),
                layers=self._program.recording,
                head=self._head.recording,
                weights=[_bytes(weight) for weight in weights],
                matrices=recorded,
                caches=[layers[keys.data_ptr()] for keys, _ in self._references.caches],
                groups=[layer.group for layer in self._kv],
                ropes=[RecordedRope(_bytes(frequencies), factor) for frequencies, factor in fixed],
                words=len(matrices) - 1,
                word_scale=self._model.spec.embedding.scale,
                hidden_size=width,
                num_logits=self._vocabulary,
                vocabulary=self._model.spec.vocab_size,
                logit_scale=self._model.spec.logit_scale,
            )
        )


def record(
    model: LanguageModel | DraftHead,
    kv: list[KVLayer],
    width: int,
    references: References | None = None,
    num_adapter_slots: int = 0,
    taps: Sequence[int] = (),
) -> TapeProgram:
    """The model's layers and last norm, with this cache; it writes what enters the layers in `taps` too."""
    tape, tapped = Tape(references), Taps(taps)
    x = tape.given(TapeInput("x"), width)
    groups = range(max(layer.group for layer in kv) + 1)
    has_temperatures = isinstance(model, LanguageModel) and model.spec.temperature is not None
    batch = _recorded(
        Batch,
        query_starts=TapeInput("starts"),
        lengths=TapeInput("lengths"),
        lengths_for_angles=None,
        tables=[TapeInput(f"table {group}") for group in groups],
        slots=[TapeInput(f"slots {group}") for group in groups],
        kv=kv,
        adapters=_adapters(num_adapter_slots),
        temperatures=tape.given(TapeInput("temperatures"), 1) if has_temperatures else None,
        taps=tapped if taps else None,
    )
    ropes = [cast(Rope, rope).num_angles for rope in model.ropes]
    angles = [(TapeInput(f"cos {number}", size), TapeInput(f"sin {number}", size)) for number, size in enumerate(ropes)]
    hidden = cast(Value, model.body(cast(Tensor, x), cast("list[tuple[Tensor, Tensor]]", angles), batch))
    tape.give(hidden, TapeInput("hidden"))
    for layer, value in tapped.values.items():
        tape.give(cast(Value, value), TapeInput(tap_name(layer)))
    return tape.finish()


def record_head(
    model: LanguageModel | DraftHead, width: int, references: References | None = None, num_adapter_slots: int = 0
) -> tuple[TapeProgram, int]:
    """The model's output head, and how many logits it makes."""
    tape = Tape(references)
    hidden = cast(Tensor, tape.given(TapeInput("hidden"), width))
    logits = cast(Value, model.project(hidden, _adapters(num_adapter_slots)))
    tape.give(logits, TapeInput("logits"))
    return tape.finish(), logits.width


def _adapters(num_slots: int) -> AdapterRows | None:
    return AdapterRows(cast(Tensor, TapeInput("adapters")), num_slots) if num_slots else None


def _bytes(weight: Tensor) -> bytes:
    return weight.numpy().tobytes()


def _recorded(batch: type[Batch], **fields: object) -> Batch:
    """A batch of inputs that stand for the tensors of every step."""
    return batch(**fields)  # type: ignore[arg-type]
