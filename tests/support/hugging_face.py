"""Architectures of Hugging Face in small: settings, inputs, and the number of rescalings they should have."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

Inputs = dict[str, Tensor]

TOKENS, LENGTH = 40, 6


class Case(NamedTuple):
    """A class of model and its settings, an input, and the number of rescalings where it can be derived."""

    model: str
    config: str
    settings: Mapping[str, Any]
    inputs: Callable[[], Inputs]
    dimension: int | None = None


def tokens(length: int = LENGTH) -> Tensor:
    """Numbers of tokens, but for the first, which some models take for padding: it has no gradient."""
    return torch.randint(5, TOKENS, (2, length))


def words() -> Inputs:
    return {"input_ids": tokens()}


def words_to_words() -> Inputs:
    return {"input_ids": tokens(), "decoder_input_ids": tokens(LENGTH - 1)}


def image(size: int) -> Callable[[], Inputs]:
    return lambda: {"pixel_values": torch.randn(2, 3, size, size)}


def words_and_image() -> Inputs:
    return words() | image(16)()


# Every transformer: 2 layers of width 16 with 4 heads of 4, and 24 units between.
LAYERS, WIDTH, HEADS, SIZE, UNITS = 2, 16, 4, 4, 24
SHAPE = {"hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS}
BERT = {**SHAPE, "intermediate_size": UNITS, "vocab_size": TOKENS, "max_position_embeddings": 16}
# Two heads share a key and a value.
SHARED = 2
LLAMA = {**BERT, "num_key_value_heads": SHARED, "head_dim": SIZE, "use_cache": False}
GPT2 = {
    "n_embd": WIDTH,
    "n_layer": LAYERS,
    "n_head": HEADS,
    "vocab_size": TOKENS,
    "n_positions": 16,
    "use_cache": False,
}
EXPERTS = 4
ROUTED = {**LLAMA, "num_local_experts": EXPERTS, "num_experts": EXPERTS, "num_experts_per_tok": 2}
SEQUENCES = {
    "d_model": WIDTH,
    "vocab_size": TOKENS,
    "encoder_layers": LAYERS,
    "decoder_layers": LAYERS,
    "encoder_attention_heads": HEADS,
    "decoder_attention_heads": HEADS,
    "encoder_ffn_dim": UNITS,
    "decoder_ffn_dim": UNITS,
    "use_cache": False,
}
T5 = {
    "d_model": WIDTH,
    "d_kv": SIZE,
    "d_ff": UNITS,
    "num_layers": LAYERS,
    "num_heads": HEADS,
    "vocab_size": TOKENS,
    "use_cache": False,
}
VISION = {**SHAPE, "intermediate_size": UNITS, "image_size": 16, "patch_size": 4}
STAGES = {"depths": [1, 1], "num_labels": 3}

# Attention with biases: scores q k leave a scale per dimension, q's against k's; a key's bias adds the same
# to all scores of a query, so that its scale is free; values scale against columns of the output.
ATTENTION = 3 * WIDTH
# Rotations mix two dimensions of a head, which have one scale then, and move biases: none is free.
ROTATED = SHARED * SIZE // 2 + SHARED * SIZE
# A residual stream ahead of a norm has one scale, over all of its writers and the embedding.
STREAM = 1
# The gain of a norm (with its shift) scales against columns of those who read it.
GAINS = WIDTH
GPT_LAYER = GAINS + ATTENTION + GAINS  # gelu pins the units between
LLAMA_LAYER = GAINS + ROTATED + GAINS + UNITS  # silu pins the gate, units scale with the other half

# Batch normalization by statistics, per channel: the convolution before it with the mean and against the
# gain; the variance against the gain. Besides, the scale of what comes out, where it is free.
STATISTICS = 2
# Channels of all batch normalizations: stem, two layers of two each of 8, then of 12 with a shortcut.
RESNET_CHANNELS = 8 + 4 * 8 + 4 * 12 + 12
# Units: the stream of 8 and one inside each of two layers, the same for 12.
RESNET_UNITS = 3 * 8 + 3 * 12

CASES = {
    # The head is the embedding: against the stream's scale goes the gain of the last norm, as a whole.
    "gpt2": Case("GPT2LMHeadModel", "GPT2Config", GPT2, words, LAYERS * GPT_LAYER + STREAM),
    "gptj": Case("GPTJForCausalLM", "GPTJConfig", {**GPT2, "rotary_dim": SIZE}, words),
    "llama": Case("LlamaForCausalLM", "LlamaConfig", LLAMA, words, LAYERS * LLAMA_LAYER + STREAM + GAINS),
    "mistral": Case(
        "MistralForCausalLM", "MistralConfig", LLAMA, words, LAYERS * LLAMA_LAYER + STREAM + GAINS
    ),
    # Biases of keys are rotated by their places: none is free, and the scales are those of llama.
    "qwen2": Case("Qwen2ForCausalLM", "Qwen2Config", LLAMA, words, LAYERS * LLAMA_LAYER + STREAM + GAINS),
    # Norms of queries and keys, one of each for all heads: the lengths of heads are free, and gains scale
    # against each other as rotations let them.
    "qwen3": Case(
        "Qwen3ForCausalLM",
        "Qwen3Config",
        LLAMA,
        words,
        LAYERS * (2 * GAINS + HEADS + SHARED + SIZE // 2 + SHARED * SIZE + UNITS) + STREAM + GAINS,
    ),
    # One matrix for queries, keys and values, one for gate and units.
    "phi3": Case(
        "Phi3ForCausalLM",
        "Phi3Config",
        {**LLAMA, "pad_token_id": 0},
        words,
        LAYERS * LLAMA_LAYER + STREAM + GAINS,
    ),
    # Gains are 1 + weight, which has no scale.
    "gemma2": Case("Gemma2ForCausalLM", "Gemma2Config", LLAMA, words),
    "gemma3": Case("Gemma3ForCausalLM", "Gemma3TextConfig", LLAMA, words),
    "olmo2": Case("Olmo2ForCausalLM", "Olmo2Config", LLAMA, words),
    "cohere": Case("CohereForCausalLM", "CohereConfig", LLAMA, words),
    # relu: units between are free.
    "opt": Case(
        "OPTForCausalLM",
        "OPTConfig",
        {**BERT, "ffn_dim": UNITS, "word_embed_proj_dim": WIDTH, "use_cache": False},
        words,
        LAYERS * (GPT_LAYER + UNITS) + STREAM,
    ),
    # Half of every head is rotated: a pair; of the other half two dimensions and two biases of keys are free.
    "gpt-neox": Case(
        "GPTNeoXForCausalLM",
        "GPTNeoXConfig",
        {**BERT, "rotary_pct": 0.5, "use_cache": False},
        words,
        LAYERS * (2 * GAINS + HEADS * (1 + 2 + 2) + WIDTH) + STREAM + GAINS,
    ),
    "falcon": Case(
        "FalconForCausalLM", "FalconConfig", {**SHAPE, "vocab_size": TOKENS, "use_cache": False}, words
    ),
    "bloom": Case("BloomForCausalLM", "BloomConfig", {**GPT2, "hidden_size": WIDTH}, words),
    # Norms behind the sums: each makes a stream of its own, and the last one is read by the head's first
    # layer. The head's norm scales, as a whole, against the embedding, which is its output layer.
    "bert": Case(
        "BertForMaskedLM", "BertConfig", BERT, words, LAYERS * (ATTENTION + 2 * STREAM) + GAINS + STREAM
    ),
    "roberta": Case(
        "RobertaForMaskedLM", "RobertaConfig", BERT, words, LAYERS * (ATTENTION + 2 * STREAM) + GAINS + STREAM
    ),
    "distilbert": Case(
        "DistilBertForMaskedLM",
        "DistilBertConfig",
        {
            "dim": WIDTH,
            "hidden_dim": UNITS,
            "n_layers": LAYERS,
            "n_heads": HEADS,
            "vocab_size": TOKENS,
            "max_position_embeddings": 16,
        },
        words,
        LAYERS * (ATTENTION + 2 * STREAM) + GAINS + STREAM,
    ),
    # A table of distances is added to the scores, which have as many numbers: keys' biases stay free.
    "mpnet": Case(
        "MPNetForMaskedLM", "MPNetConfig", BERT, words, LAYERS * (ATTENTION + 2 * STREAM) + GAINS + STREAM
    ),
    "fnet": Case(
        "FNetForMaskedLM",
        "FNetConfig",
        {name: value for name, value in BERT.items() if name != "num_attention_heads"},
        words,
    ),
    "funnel": Case(
        "FunnelForMaskedLM",
        "FunnelConfig",
        {
            "vocab_size": TOKENS,
            "block_sizes": [1, 1],
            "num_decoder_layers": 1,
            "d_model": WIDTH,
            "n_head": HEADS,
            "d_head": SIZE,
            "d_inner": UNITS,
        },
        words,
    ),
    "albert": Case("AlbertForMaskedLM", "AlbertConfig", {**BERT, "embedding_size": 8}, words),
    "deberta": Case("DebertaV2ForMaskedLM", "DebertaV2Config", BERT, words),
    "modernbert": Case(
        "ModernBertForMaskedLM",
        "ModernBertConfig",
        {**BERT, **{f"{name}_token_id": n for n, name in enumerate(("pad", "bos", "eos", "cls", "sep"))}},
        words,
    ),
    # No biases, relu. Encoder: gains, scores, values, gains, units; decoder: attention to the encoder
    # besides. One stream, for embeddings are shared; what the encoder says is among the outputs, so that its
    # last gains are not free.
    "t5": Case(
        "T5ForConditionalGeneration",
        "T5Config",
        T5,
        words_to_words,
        LAYERS * (2 * GAINS + 2 * WIDTH + UNITS) + LAYERS * (3 * GAINS + 4 * WIDTH + UNITS) + STREAM,
    ),
    "t5, gated": Case(
        "T5ForConditionalGeneration", "T5Config", {**T5, "feed_forward_proj": "gated-gelu"}, words_to_words
    ),
    "bart": Case("BartForConditionalGeneration", "BartConfig", SEQUENCES, words_to_words),
    "whisper": Case(
        "WhisperForConditionalGeneration",
        "WhisperConfig",
        {
            **SEQUENCES,
            "num_mel_bins": 8,
            "max_source_positions": 16,
            "max_target_positions": LENGTH,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "decoder_start_token_id": 1,
        },
        lambda: {"input_features": torch.randn(2, 8, 32), "decoder_input_ids": tokens()},
    ),
    "wavlm": Case(
        "WavLMForCTC",
        "WavLMConfig",
        {
            **SHAPE,
            "intermediate_size": UNITS,
            "vocab_size": TOKENS,
            "conv_dim": [8, 8],
            "conv_stride": [2, 2],
            "conv_kernel": [4, 3],
            "num_conv_pos_embeddings": 4,
            "num_conv_pos_embedding_groups": 2,
            "num_feat_extract_layers": 2,
            "num_buckets": 8,
            "max_bucket_distance": 16,
        },
        lambda: {"input_values": torch.randn(2, 64)},
    ),
    "wav2vec2": Case(
        "Wav2Vec2ForCTC",
        "Wav2Vec2Config",
        {
            **SHAPE,
            "intermediate_size": UNITS,
            "vocab_size": TOKENS,
            "conv_dim": [8, 8],
            "conv_stride": [2, 2],
            "conv_kernel": [4, 3],
            "num_conv_pos_embeddings": 4,
            "num_conv_pos_embedding_groups": 2,
            "num_feat_extract_layers": 2,
        },
        lambda: {"input_values": torch.randn(2, 64)},
    ),
    "clip": Case(
        "CLIPModel",
        "CLIPConfig",
        {"text_config": {**BERT, "eos_token_id": 2}, "vision_config": VISION, "projection_dim": 8},
        words_and_image,
    ),
    "siglip": Case(
        "SiglipModel",
        "SiglipConfig",
        {"text_config": {**BERT, "projection_size": WIDTH}, "vision_config": VISION},
        words_and_image,
    ),
    "vit": Case(
        "ViTForImageClassification", "ViTConfig", VISION, image(16), LAYERS * GPT_LAYER + STREAM + GAINS
    ),
    "swin": Case(
        "SwinForImageClassification",
        "SwinConfig",
        {
            "image_size": 16,
            "patch_size": 2,
            "embed_dim": 8,
            "depths": [2, 2],
            "num_heads": [2, 4],
            "window_size": 4,
        },
        image(16),
    ),
    "segformer": Case(
        "SegformerForSemanticSegmentation",
        "SegformerConfig",
        {
            **STAGES,
            "num_encoder_blocks": 2,
            "sr_ratios": [2, 1],
            "hidden_sizes": [8, 16],
            "patch_sizes": [7, 3],
            "strides": [4, 2],
            "num_attention_heads": [1, 2],
            "mlp_ratios": [2, 2],
            "decoder_hidden_size": 16,
        },
        image(32),
    ),
    "levit": Case(
        "LevitForImageClassification",
        "LevitConfig",
        {
            "image_size": 64,
            "hidden_sizes": [16, 32, 48],
            "num_attention_heads": [2, 2, 4],
            "depths": [1, 1, 1],
            "key_dim": [8, 8, 8],
        },
        image(64),
    ),
    "resnet": Case(
        "ResNetForImageClassification",
        "ResNetConfig",
        {"embedding_size": 8, "hidden_sizes": [8, 12], "depths": [2, 2], "layer_type": "basic"},
        image(32),
        STATISTICS * RESNET_CHANNELS + RESNET_UNITS,
    ),
    "regnet": Case(
        "RegNetForImageClassification",
        "RegNetConfig",
        {**STAGES, "embedding_size": 8, "hidden_sizes": [8, 16], "groups_width": 4},
        image(32),
    ),
    "mobilenetv2": Case(
        "MobileNetV2ForImageClassification",
        "MobileNetV2Config",
        {"depth_multiplier": 0.25, "image_size": 32},
        image(32),
    ),
    "convnext": Case(
        "ConvNextForImageClassification",
        "ConvNextConfig",
        {**STAGES, "hidden_sizes": [8, 12], "num_stages": 2},
        image(32),
    ),
    "convnextv2": Case(
        "ConvNextV2ForImageClassification",
        "ConvNextV2Config",
        {**STAGES, "hidden_sizes": [8, 12], "num_stages": 2},
        image(32),
    ),
    # Which expert a token goes to is not known: a unit has one scale for all of them. In truth each expert
    # has its own, which is not found.
    "mixtral": Case(
        "MixtralForCausalLM", "MixtralConfig", ROUTED, words, LAYERS * LLAMA_LAYER + STREAM + GAINS
    ),
    "qwen3 with experts": Case(
        "Qwen3MoeForCausalLM", "Qwen3MoeConfig", {**ROUTED, "moe_intermediate_size": 12}, words
    ),
    "gpt-oss": Case("GptOssForCausalLM", "GptOssConfig", ROUTED, words),
    # Rotations by complex numbers.
    "deepseek v2": Case(
        "DeepseekV2ForCausalLM",
        "DeepseekV2Config",
        {
            **BERT,
            "use_cache": False,
            "num_key_value_heads": HEADS,
            "moe_intermediate_size": 12,
            "n_routed_experts": EXPERTS,
            "num_experts_per_tok": 2,
            "n_group": 2,
            "topk_group": 1,
            "first_k_dense_replace": 1,
            "q_lora_rank": 8,
            "kv_lora_rank": 8,
            "qk_rope_head_dim": SIZE,
            "qk_nope_head_dim": SIZE,
            "v_head_dim": SIZE,
        },
        words,
    ),
    "deepseek v3": Case(
        "DeepseekV3ForCausalLM",
        "DeepseekV3Config",
        {
            **BERT,
            "use_cache": False,
            "num_key_value_heads": HEADS,
            "moe_intermediate_size": 12,
            "n_routed_experts": EXPERTS,
            "num_experts_per_tok": 2,
            "n_group": 2,
            "topk_group": 1,
            "first_k_dense_replace": 1,
            "q_lora_rank": 8,
            "kv_lora_rank": 8,
            "qk_rope_head_dim": SIZE,
            "qk_nope_head_dim": SIZE,
            "v_head_dim": SIZE,
        },
        words,
    ),
    "mamba": Case(
        "MambaForCausalLM",
        "MambaConfig",
        {
            "hidden_size": WIDTH,
            "num_hidden_layers": LAYERS,
            "vocab_size": TOKENS,
            "state_size": 4,
            "time_step_rank": 4,
            "use_cache": False,
        },
        words,
    ),
    "rwkv": Case(
        "RwkvForCausalLM",
        "RwkvConfig",
        {
            "hidden_size": WIDTH,
            "attention_hidden_size": WIDTH,
            "intermediate_size": UNITS,
            "num_hidden_layers": LAYERS,
            "vocab_size": TOKENS,
            "use_cache": False,
        },
        words,
    ),
    "xlnet": Case(
        "XLNetLMHeadModel",
        "XLNetConfig",
        {"d_model": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "d_inner": UNITS, "vocab_size": TOKENS},
        words,
    ),
}
