"""Settings of distillation: how an adapter is trained, and what it must reach before it is published."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from memos.config.section import Section


class GateConfig(Section):
    """What an adapter must reach on held-out probes; shares of probes, each of which is an estimate.

    Of n probes without a failure, the true share is at least 1 - 3/n with 95 % certainty: 60 probes say .95.
    """

    askable: float = Field(
        0.5, ge=0, le=1, description="of a group's statements, those with questions for training and held out"
    )
    reliability: float = Field(0.95, ge=0, le=1, description="questions as trained, answered right")
    generality: float = Field(0.90, ge=0, le=1, description="held-out phrasings, answered right")
    locality: float = Field(0.95, ge=0, le=1, description="unrelated closed-book questions, answer unchanged")
    in_context: float = Field(0.95, ge=0, le=1, description="questions over another context, answer unchanged")
    override: float = Field(0.90, ge=0, le=1, description="those among them whose context contradicts a fact")
    drift: float = Field(0.1, ge=0, description="most KL to the base model on all of these, in nats")
    outdated: float = Field(0.02, ge=0, le=1, description="most questions that an edit still answers as before it")


class DistilConfig(Section):
    """Context distillation into LoRA. Unset values come by the size of the model; see docs/decisions (0012)."""

    rank: int = Field(32, ge=1)
    alpha: int = Field(64, ge=1)
    targets: tuple[str, ...] | Literal["mlp", "attention", "all-linear"] = Field(
        "mlp", description="linear layers to adapt; mlp leaves reading a context alone"
    )
    layers: float = Field(1.0, gt=0, le=1, description="share of the layers that are adapted, from the first on")
    learning_rate: float | None = Field(None, gt=0, description="unset: 1e-2 for tiny models, to 2e-4 from 3B on")
    steps: int = Field(220, ge=1, description="most optimiser steps; training usually fewer: see the stop_ values")
    edit_steps: int = Field(
        40,
        ge=0,
        description="most steps that bring an adapter up to date with memories that changed, or refine one that was "
        "written in one forward; 0: always trained anew",
    )
    instant: str = Field(
        "auto",
        description="file of a network that makes adapters in one forward, which are trained where that falls short of "
        "the gate; never: always trained; auto: memos/instant.safetensors in the model's folder, if there is one",
    )
    batch: int = Field(24, ge=1, description="lessons in a step")
    batch_keep: int = Field(40, ge=1, description="prompts in a step whose answers must stay")
    review: int = Field(40, ge=1, description="steps after which all prompts are read, to draw what is not learnt yet")
    checkpoint: int = Field(40, ge=1, description="steps after which training can be taken up again")
    stop_probability: float = Field(0.6, gt=0, le=1, description="of every answer token, for training to end early")
    stop_drift: float = Field(
        0.001, gt=0, description="KL to the base model on what is to be kept, for training to end early"
    )
    top_logits: int = Field(20, ge=1, description="the teacher's top tokens that are matched")
    kl_base: float = Field(
        3.0, ge=0, description="weight of KL to the base model on closed-book and other-context prompts"
    )
    gradient_checkpointing: bool | None = Field(None, description="unset: from 500M parameters on")
    self_study: int | None = Field(
        None,
        ge=0,
        description="questions that the model writes itself about a memory in which the rules find none; unset: 6 for "
        "a model with a chat template, else 0",
    )
    questions: str = Field(
        "gaps",
        description="what asks about statements of which neither the phrasebook nor the model asks anything: gaps "
        "leaves words out and asks for them; or another that is installed",
    )
    isolation: str = Field(
        "auto",
        description="where training runs: process, thread, or another executor that is installed; auto: a process of "
        "its own on a CPU, beside the model on a GPU",
    )
    at_once: int = Field(
        1, ge=1, description="trainings on one device, of all processes of this user; the others wait for their turn"
    )
    seed: int = 0
    gate: GateConfig = GateConfig()
