"""A small random GPT-2 of `transformers`, saved as its users save theirs."""

import pytest


@pytest.fixture(scope="session")
def theirs():
    """Makes a GPT-2 of `transformers` whose every weight is random: no bias 0, no scale 1."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")

    def make(model_class="GPT2LMHeadModel", **settings):
        sizes = dict(vocab_size=61, n_positions=16, n_embd=24, n_layer=2, n_head=3, n_inner=40)
        config = transformers.GPT2Config(
            **{**sizes, "bos_token_id": 60, "eos_token_id": 60, **settings}
        )
        torch.manual_seed(3)
        model = getattr(transformers, model_class)(config).eval()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                centre = 1.0 if "ln_" in name and name.endswith("weight") else 0.0
                parameter.normal_(centre, 0.3)
        return model

    return make


@pytest.fixture
def directory(theirs, tmp_path):
    """The directory of such a model."""
    theirs().save_pretrained(tmp_path)
    return tmp_path
