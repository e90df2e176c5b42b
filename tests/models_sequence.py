"""Attention, recurrence, and odd parameters. See models.py."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from models_register import Built, case, mean_square, on
from torch import Tensor, nn
from torch.nn.utils import parametrizations

# --- Attention, recurrence -----------------------------------------------------------------------------


@case(
    {
        ".": "in0 > layers.0 > layers.1 > out0; in1 ..> layers.0; in1 ..> layers.1",
        "layers.0": """in0 > self_attn > dropout1 > norm1 > linear1 > dropout > linear2 > dropout2
                       dropout2 > norm2 > out0; in0 > norm1 > norm2; in1 > self_attn""",
        # query, key, value and the float mask
        "layers.0/self_attn": "in0 > out0; in1 > out0; in2 > out0; in3 > out0",
    }
)
def encoder_in_training() -> Built:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.1)
    mask = torch.zeros(3, 5, dtype=torch.bool)
    mask[0, 3:] = True
    return nn.TransformerEncoder(layer, 2), on(torch.randn(3, 5, 16), src_key_padding_mask=mask)


@case(
    {
        # padding is cut off before the first layer, as a nested tensor
        ".": "in0 ..> layers.0 ..> layers.1 ..> out0; in1 ..> layers.0",
        "layers.0": "in0 ..> out0",
    }
)
def encoder_fused_in_eval() -> Built:
    """One kernel does the work of a layer; its children are never called."""
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    x, mask = torch.randn(3, 5, 16), torch.zeros(3, 5, dtype=torch.bool)
    mask[0, 3:] = True

    def run(model: nn.Module) -> None:
        with torch.no_grad():
            model(x, src_key_padding_mask=mask)

    return nn.TransformerEncoder(layer, 2).eval(), run


class CrossAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm = nn.LayerNorm(8)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        attended, weights = self.attention(x, context, context, need_weights=False)
        assert weights is None
        return self.norm(x + attended)


@case(
    {
        ".": "in0 > attention > norm > out0; in1 > attention; in0 > norm",
        "attention": "in0 > out0; in1 > out0; in2 > out0",
    }
)
def attention_without_weights() -> Built:
    return CrossAttention(), on(torch.randn(2, 3, 8), context=torch.randn(2, 4, 8))


class SelfAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x)[0]


@case(
    {
        ".": "in0 > attention > out0",
        "attention": """in0 > out0; in1 > out0; in2 > out0
                        in0 > out1; in1 > out1; in2 > out1""",
    }
)
def one_tensor_three_arguments() -> Built:
    """One object is three inputs. The weights don't depend on the value, but it is the same object."""
    return SelfAttention(), on(torch.randn(2, 3, 8))


class PackedRecurrence(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(4, 6)
        self.rnn = nn.LSTM(6, 8, batch_first=True)
        self.head = nn.Linear(8, 2)

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        packed = nn.utils.rnn.pack_padded_sequence(
            self.embed(x), lengths, batch_first=True, enforce_sorted=False
        )
        packed, (hidden, _) = self.rnn(packed)
        output, _ = nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)
        return self.head(output), hidden


@case({".": "in0 > embed > rnn > head > out0; rnn > out1; in1 ..> rnn"})
def lstm_on_a_packed_sequence() -> Built:
    x, lengths = torch.randn(3, 5, 4), torch.tensor([5, 2, 3])
    return PackedRecurrence(), lambda model: mean_square(*model(x, lengths))


class TwoLayers(nn.Module):
    """h feeds a head, and both states start the next call."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(4, 4, batch_first=True)
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        _, (hidden, cell) = self.rnn(x)
        output, _ = self.rnn(x.flip(1), (hidden, cell))
        return self.head(hidden[-1]) + output.mean()


@case(
    {
        ".": "in0 > rnn > rnn#1 > out0; in0 > rnn#1; rnn > head > out0",
        "rnn#1": """in0 > out0; in0 > out1; in0 > out2
                    in1 > out0; in1 > out1; in1 > out2
                    in2 > out0; in2 > out1; in2 > out2""",
    }
)
def lstm_states() -> Built:
    return TwoLayers(), on(torch.randn(3, 5, 4))


class GRUCellLoop(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        state = x.new_zeros(x.shape[0], 4)
        for step in x.unbind(1):
            state = self.cell(step, state)
        return state


@case({".": "in0 > cell > cell#1 > cell#2 > out0; in0 > cell#1; in0 > cell#2"})
def gru_cell_in_a_loop() -> Built:
    return GRUCellLoop(), on(torch.randn(3, 3, 4))


class KeyValueCache(nn.Module):
    """Steps of a decoder: keys are kept in a buffer of the caller, written by slices."""

    def __init__(self) -> None:
        super().__init__()
        self.key = nn.Linear(4, 4)
        self.read = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        cache = x.new_zeros(x.shape[0], 2, 4)
        cache[:, 0] = self.key(x)
        first = self.read(cache[:, :1].clone())  # or backward would miss what is overwritten next
        cache[:, 1] = self.key(first[:, 0])
        return self.read(cache).sum(1)


@case({".": "in0 > key > read > key#1 > read#1 > out0; key > read#1"})
def key_value_cache() -> Built:
    return KeyValueCache(), on(torch.randn(3, 4))


# --- Parameters ----------------------------------------------------------------------------------------


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 6)
        self.hidden = nn.Linear(6, 6)
        self.out = nn.Linear(6, 10, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(self.hidden(self.embed(tokens)))


@case({".": "in0 ..> embed > hidden > out > out0"})
def weight_tying() -> Built:
    tokens = torch.randint(10, (3, 4))
    return Tied(), lambda model: F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())


@case(
    {
        ".": "in0 > 0 > 1 > 2 > 3 > out0",
        "0": "in0 > out0; parametrizations.weight > out0",
        "0/parametrizations.weight": "0 > out0",
        "2": "in0 > out0; parametrizations.weight > out0",
        "3": "in0 > out0",
    }
)
def parametrized() -> Built:
    """New parametrizations are modules that run inside; the old kind runs before the module does."""
    with_warnings_off = nn.utils.spectral_norm(nn.Linear(6, 3))
    model = nn.Sequential(
        parametrizations.spectral_norm(nn.Linear(6, 6)),
        nn.ReLU(),
        parametrizations.weight_norm(nn.Linear(6, 6)),
        with_warnings_off,
    )
    return model, on(torch.randn(5, 6))


class ReturnsParameter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4))

    def forward(self) -> Tensor:
        return self.weight


class Prompt(nn.Module):
    """A child without inputs whose result is a leaf."""

    def __init__(self) -> None:
        super().__init__()
        self.prompt = ReturnsParameter()
        self.out = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(x + self.prompt())


@case({".": "in0 > out > out0; prompt > out", "prompt": ""})
def module_that_returns_a_parameter() -> Built:
    return Prompt(), on(torch.randn(3, 4))


@case({".": "in0 > 0 > 1 > 2 > out0", "0": "in0 > out0"})
def lazy() -> Built:
    model = nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d(), nn.LazyLinear(2))
    return model, on(torch.randn(5, 3))
