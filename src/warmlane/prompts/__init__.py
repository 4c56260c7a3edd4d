"""From messages to what the model reads: chat templates, token-faithful plans, and the ledger of sampled replies."""

from warmlane.prompts.ledger import SampledLedger
from warmlane.prompts.plan import PromptPlan, TextRun, TokenRun
from warmlane.prompts.renderer import PromptRenderer
from warmlane.prompts.template import ChatTemplate, TemplateRejected

__all__ = [
    "ChatTemplate",
    "PromptPlan",
    "PromptRenderer",
    "SampledLedger",
    "TemplateRejected",
    "TextRun",
    "TokenRun",
]
