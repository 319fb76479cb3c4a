"""More architectures of Hugging Face in small: settings, an example, and calls that take other paths."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tests.support.hugging_face import (
    BERT,
    GPT2,
    HEADS,
    LAYERS,
    LLAMA,
    SHAPE,
    SIZE,
    STAGES,
    TOKENS,
    UNITS,
    VISION,
    WIDTH,
)

Inputs = dict[str, Tensor]
Calls = Callable[[], list[Inputs]]


class Case(NamedTuple):
    """A class of model, settings of its configuration, and calls: an example first."""

    model: str
    settings: Mapping[str, Any]
    calls: Calls


def tokens(length: int) -> Tensor:
    return torch.randint(5, TOKENS, (2, length))


def padded(length: int, padding: int) -> Tensor:
    """A mask of two sequences, the second of which is shorter."""
    mask = torch.ones(2, length, dtype=torch.long)
    mask[1, length - padding :] = 0
    return mask


def texts(short: int = 3, long: int = 21, ids: str = "input_ids") -> Calls:
    """Other tokens, longer and shorter sequences, padding."""
    return lambda: [
        {ids: tokens(6)},
        {ids: tokens(6)},
        {ids: tokens(long)},
        {ids: tokens(short)},
        {ids: tokens(long - 3), "attention_mask": padded(long - 3, 4)},
    ]


def pairs(long: int = 21, **others: Callable[[], Tensor]) -> Calls:
    """Texts of an encoder and a decoder."""

    def both(length: int, answer: int, **more: Tensor) -> Inputs:
        fixed = {name: make() for name, make in others.items()}
        return {"input_ids": tokens(length), "decoder_input_ids": tokens(answer), **fixed, **more}

    return lambda: [
        both(6, 5),
        both(6, 5),
        both(long, 4),
        both(4, long),
        both(long, 7, attention_mask=padded(long, 5)),
    ]


def images(*sizes: int, channels: int = 3, mask: int = 0, name: str = "pixel_values") -> Calls:
    """Other values, large and small, batches and sizes, masks of patches.

    None is constant: batch normalization in training mode divides that by its rounding, so that running
    statistics, and all outputs in evaluation mode after it, would be noise that hides every mistake.
    """

    def calls() -> list[Inputs]:
        first = sizes[0]
        found = [{name: torch.randn(2, channels, first, first)} for _ in range(2)]
        found.append({name: 10 * torch.randn(3, channels, first, first).abs()})
        found.append({name: 0.01 * torch.randn(2, channels, first, first)})
        found.extend({name: torch.randn(2, channels, size, size)} for size in sizes[1:])
        if mask:
            found.append({**found[1], "bool_masked_pos": torch.rand(2, mask) < 0.5})
        return found

    return calls


def sounds(*lengths: int, name: str = "input_values", features: int = 0) -> Calls:
    """Waves, or features of them: other values, lengths, and padding."""

    def sound(length: int) -> Tensor:
        return torch.randn(2, length, features) if features else torch.randn(2, length)

    return lambda: [
        *({name: sound(length)} for length in (lengths[0], *lengths)),
        {name: 10 * sound(lengths[0])},
        {name: sound(lengths[0]), "attention_mask": padded(lengths[0], lengths[0] // 3)},
    ]


SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "use_cache": False}
TEXT = {**BERT, **SPECIAL, "max_position_embeddings": 64}
TEXT2 = {**GPT2, **SPECIAL, "n_positions": 64}
MODERN = {**LLAMA, **SPECIAL, "max_position_embeddings": 64}
EXPERTS = {
    **MODERN,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 12,
}
LATENT = {  # attention through a narrow layer
    "q_lora_rank": 8,
    "kv_lora_rank": 8,
    "qk_rope_head_dim": SIZE,
    "qk_nope_head_dim": SIZE,
    "v_head_dim": SIZE,
    "n_group": 2,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "num_key_value_heads": HEADS,
}
SEQUENCES = {
    **SPECIAL,
    "d_model": WIDTH,
    "hidden_size": WIDTH,
    "vocab_size": TOKENS,
    "encoder_layers": LAYERS,
    "decoder_layers": LAYERS,
    "encoder_attention_heads": HEADS,
    "decoder_attention_heads": HEADS,
    "encoder_ffn_dim": UNITS,
    "decoder_ffn_dim": UNITS,
    "max_position_embeddings": 64,
    "decoder_start_token_id": 1,
    "forced_eos_token_id": 2,
}
T5 = {
    **SPECIAL,
    "d_model": WIDTH,
    "d_kv": SIZE,
    "d_ff": UNITS,
    "num_layers": LAYERS,
    "num_decoder_layers": LAYERS,
    "num_heads": HEADS,
    "vocab_size": TOKENS,
    "decoder_start_token_id": 0,
}
STATE = {**SPECIAL, "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "vocab_size": TOKENS, "state_size": 4}
WAVES = {
    **SHAPE,
    "intermediate_size": UNITS,
    "vocab_size": TOKENS,
    "conv_dim": [8, 8],
    "conv_stride": [2, 2],
    "conv_kernel": [4, 3],
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
    "num_feat_extract_layers": 2,
    "mask_time_length": 3,
    "mask_time_prob": 0.3,
    "mask_feature_length": 3,
}
SERIES = {
    "d_model": WIDTH,
    "prediction_length": 4,
    "context_length": 8,
    "lags_sequence": [1, 2],
    "num_time_features": 2,
    "encoder_layers": LAYERS,
    "decoder_layers": LAYERS,
    "encoder_attention_heads": HEADS,
    "decoder_attention_heads": HEADS,
    "encoder_ffn_dim": UNITS,
    "decoder_ffn_dim": UNITS,
}
PYRAMID = {"hidden_sizes": [8, 16], "embed_dim": 8, "num_labels": 3, "depths": [1, 1]}


def series(past: int = 10) -> Calls:
    def one(batch: int, size: float, seen: bool) -> Inputs:
        observed = torch.ones(batch, past) if seen else (torch.rand(batch, past) < 0.7).float()
        return {
            "past_values": size * torch.randn(batch, past),
            "past_time_features": torch.randn(batch, past, 2),
            "past_observed_mask": observed,
            "future_values": size * torch.randn(batch, 4),
            "future_time_features": torch.randn(batch, 4, 2),
        }

    return lambda: [one(2, 1, True), one(2, 1, True), one(3, 20, True), one(2, 1, False)]


def patches(past: int = 16, channels: int = 2) -> Calls:
    def one(batch: int, size: float, seen: bool) -> Inputs:
        shape = (batch, past, channels)
        observed = torch.ones(shape, dtype=torch.bool) if seen else torch.rand(shape) < 0.7
        return {"past_values": size * torch.randn(shape), "past_observed_mask": observed}

    return lambda: [one(2, 1, True), one(2, 1, True), one(3, 20, True), one(2, 1, False)]


def with_images(calls: Calls, size: int = 16) -> Calls:
    return lambda: [{**call, "pixel_values": torch.randn(2, 3, size, size)} for call in calls()]


def boxes(calls: Calls) -> Calls:
    """Texts with a box for each word."""

    def box(ids: Tensor) -> Tensor:
        corner = torch.randint(0, 7, (*ids.shape, 2))
        return torch.cat([corner, corner + torch.randint(1, 7, corner.shape)], -1)

    return lambda: [{**call, "bbox": box(call["input_ids"])} for call in calls()]


CASES = {
    # Text, one way
    "gpt-neo": Case(
        "GPTNeoForCausalLM",
        {
            **TEXT,
            "num_layers": 2,
            "num_heads": HEADS,
            "attention_types": [[["global", "local"], 1]],
            "window_size": 4,
        },
        texts(),
    ),
    "codegen": Case("CodeGenForCausalLM", {**TEXT2, "rotary_dim": SIZE, "n_ctx": 64}, texts()),
    "gpt bigcode": Case("GPTBigCodeForCausalLM", TEXT2, texts()),
    "openai gpt": Case("OpenAIGPTLMHeadModel", TEXT2, texts()),
    "imagegpt": Case("ImageGPTForCausalImageModeling", TEXT2, texts()),
    "mpt": Case(
        "MptForCausalLM",
        {
            **SPECIAL,
            "d_model": WIDTH,
            "n_heads": HEADS,
            "n_layers": LAYERS,
            "vocab_size": TOKENS,
            "max_seq_len": 64,
        },
        texts(),
    ),
    "stablelm": Case("StableLmForCausalLM", MODERN, texts()),
    "starcoder2": Case("Starcoder2ForCausalLM", MODERN, texts()),
    "phi": Case("PhiForCausalLM", MODERN, texts()),
    "olmo": Case("OlmoForCausalLM", MODERN, texts()),
    "olmo3": Case("Olmo3ForCausalLM", {**MODERN, "sliding_window": 4}, texts()),
    "exaone4": Case(
        "Exaone4ForCausalLM", {**MODERN, "sliding_window": 4, "sliding_window_pattern": 2}, texts()
    ),
    "glm": Case("GlmForCausalLM", MODERN, texts()),
    "glm4": Case("Glm4ForCausalLM", MODERN, texts()),
    "granite": Case("GraniteForCausalLM", MODERN, texts()),
    "nemotron": Case("NemotronForCausalLM", MODERN, texts()),
    "persimmon": Case("PersimmonForCausalLM", TEXT, texts()),
    "cohere2": Case("Cohere2ForCausalLM", {**MODERN, "sliding_window": 4}, texts()),
    "gemma": Case("GemmaForCausalLM", MODERN, texts()),
    "helium": Case("HeliumForCausalLM", MODERN, texts()),
    "smollm3": Case("SmolLM3ForCausalLM", MODERN, texts()),
    "apertus": Case("ApertusForCausalLM", MODERN, texts()),
    "arcee": Case("ArceeForCausalLM", MODERN, texts()),
    "diffllama": Case("DiffLlamaForCausalLM", MODERN, texts()),
    "bitnet": Case("BitNetForCausalLM", MODERN, texts()),
    "biogpt": Case("BioGptForCausalLM", TEXT, texts()),
    "xglm": Case(
        "XGLMForCausalLM",
        {
            **SPECIAL,
            "d_model": WIDTH,
            "num_layers": LAYERS,
            "attention_heads": HEADS,
            "ffn_dim": UNITS,
            "vocab_size": TOKENS,
            "max_position_embeddings": 64,
        },
        texts(),
    ),
    "ctrl": Case("CTRLLMHeadModel", {**TEXT2, "dff": UNITS}, texts()),
    "gpt-neox-japanese": Case(
        "GPTNeoXJapaneseForCausalLM", {**TEXT, "intermediate_multiple_size": 2}, texts()
    ),
    # Text, both ways
    "xlm": Case(
        "XLMWithLMHeadModel",
        {
            **SPECIAL,
            "emb_dim": WIDTH,
            "n_layers": LAYERS,
            "n_heads": HEADS,
            "n_words": TOKENS,
            "max_position_embeddings": 64,
        },
        texts(),
    ),
    "electra": Case("ElectraForMaskedLM", {**TEXT, "embedding_size": 8}, texts()),
    "mobilebert": Case(
        "MobileBertForMaskedLM",
        {
            **TEXT,
            "embedding_size": 8,
            "intra_bottleneck_size": 8,
            "true_hidden_size": 8,
            "num_feedforward_networks": 2,
        },
        texts(),
    ),
    "squeezebert": Case("SqueezeBertForMaskedLM", {**TEXT, "embedding_size": WIDTH}, texts()),
    "funnel": Case(
        "FunnelForMaskedLM",
        {
            **SPECIAL,
            "d_model": WIDTH,
            "d_inner": UNITS,
            "n_head": HEADS,
            "d_head": SIZE,
            "block_sizes": [1, 1],
            "vocab_size": TOKENS,
        },
        texts(4),
    ),
    "convbert": Case(
        "ConvBertForMaskedLM", {**TEXT, "embedding_size": WIDTH, "conv_kernel_size": 3}, texts()
    ),
    "mpnet": Case("MPNetForMaskedLM", TEXT, texts()),
    "fnet": Case(
        "FNetForMaskedLM",
        {**TEXT, "tpu_short_seq_length": 6},
        lambda: [{"input_ids": tokens(n)} for n in (6, 6, 21, 3)],
    ),
    "longformer": Case(
        "LongformerForMaskedLM", {**TEXT, "attention_window": 4, "max_position_embeddings": 72}, texts()
    ),
    "big bird": Case(
        "BigBirdForMaskedLM",
        {**TEXT, "block_size": 2, "num_random_blocks": 1, "max_position_embeddings": 128},
        texts(long=48),
    ),
    "reformer": Case(
        "ReformerForMaskedLM",
        {
            **SPECIAL,
            "hidden_size": WIDTH,
            "num_attention_heads": 2,
            "attention_head_size": 8,
            "feed_forward_size": UNITS,
            "attn_layers": ["local", "lsh"],
            "axial_pos_embds": False,
            "max_position_embeddings": 64,
            "vocab_size": TOKENS,
            "local_attn_chunk_length": 4,
            "lsh_attn_chunk_length": 4,
            "num_buckets": 4,
            "is_decoder": False,
            "hash_seed": 0,
            "hidden_dropout_prob": 0.0,  # it seeds dropout by torch.seed(), which no seed decides
            "local_attention_probs_dropout_prob": 0.0,
            "lsh_attention_probs_dropout_prob": 0.0,
        },
        lambda: [{"input_ids": tokens(n)} for n in (8, 8, 24, 3)],
    ),
    "rembert": Case(
        "RemBertForMaskedLM", {**TEXT, "input_embedding_size": 8, "output_embedding_size": 12}, texts()
    ),
    "ernie": Case("ErnieForMaskedLM", TEXT, texts()),
    "nystromformer": Case(
        "NystromformerForMaskedLM",
        {**TEXT, "num_landmarks": 4, "segment_means_seq_len": 8, "conv_kernel_size": 3},
        lambda: [{"input_ids": tokens(n)} for n in (8, 8, 4)],
    ),
    "yoso": Case("YosoForMaskedLM", {**TEXT, "use_expectation": True}, texts()),
    "roformer": Case("RoFormerForMaskedLM", {**TEXT, "embedding_size": 8}, texts()),
    "megatron-bert": Case("MegatronBertForMaskedLM", TEXT, texts()),
    "layoutlm": Case("LayoutLMForMaskedLM", {**TEXT, "max_2d_position_embeddings": 16}, boxes(texts())),
    "luke": Case("LukeForMaskedLM", {**TEXT, "entity_vocab_size": 10, "entity_emb_size": 8}, texts()),
    "camembert": Case("CamembertForMaskedLM", TEXT, texts()),
    "roberta-prelayernorm": Case("RobertaPreLayerNormForMaskedLM", TEXT, texts()),
    "xlm-roberta-xl": Case("XLMRobertaXLForMaskedLM", TEXT, texts()),
    "data2vec text": Case("Data2VecTextForMaskedLM", TEXT, texts()),
    "ibert": Case("IBertForMaskedLM", TEXT, texts()),
    "deberta v1": Case(
        "DebertaForMaskedLM", {**TEXT, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]}, texts()
    ),
    "esm": Case("EsmForMaskedLM", {**TEXT, "mask_token_id": 3, "position_embedding_type": "rotary"}, texts()),
    "canine": Case(
        "CanineModel",
        {
            **TEXT,
            "num_hash_functions": 2,
            "num_hash_buckets": 16,
            "local_transformer_stride": 4,
            "downsampling_rate": 2,
        },
        texts(8, 16),
    ),
    "perceiver": Case(
        "PerceiverForMaskedLM",
        {
            "d_latents": 16,
            "d_model": 16,
            "num_latents": 4,
            "num_blocks": 1,
            "num_self_attends_per_block": 1,
            "num_self_attention_heads": 2,
            "num_cross_attention_heads": 2,
            "vocab_size": TOKENS,
            "max_position_embeddings": 64,
            "qk_channels": 16,
            "v_channels": 16,
        },
        lambda: [{"inputs": tokens(64), "attention_mask": padded(64, n)} for n in (40, 0, 10)],
    ),
    # From one text to another
    "mbart": Case("MBartForConditionalGeneration", SEQUENCES, pairs()),
    "pegasus": Case("PegasusForConditionalGeneration", SEQUENCES, pairs()),
    "marian": Case("MarianMTModel", SEQUENCES, pairs()),
    "blenderbot": Case("BlenderbotForConditionalGeneration", SEQUENCES, pairs()),
    "plbart": Case("PLBartForConditionalGeneration", SEQUENCES, pairs()),
    "m2m 100": Case("M2M100ForConditionalGeneration", SEQUENCES, pairs()),
    "led": Case(
        "LEDForConditionalGeneration",
        {
            **SEQUENCES,
            "attention_window": 4,
            "max_encoder_position_embeddings": 64,
            "max_decoder_position_embeddings": 64,
        },
        pairs(),
    ),
    "bigbird pegasus": Case(
        "BigBirdPegasusForConditionalGeneration",
        {**SEQUENCES, "block_size": 2, "num_random_blocks": 1},
        pairs(40),
    ),
    "prophetnet": Case(
        "ProphetNetForConditionalGeneration",
        {
            **SPECIAL,
            "hidden_size": WIDTH,
            "vocab_size": TOKENS,
            "encoder_ffn_dim": UNITS,
            "decoder_ffn_dim": UNITS,
            "max_position_embeddings": 64,
            "decoder_start_token_id": 1,
            "num_encoder_layers": LAYERS,
            "num_decoder_layers": LAYERS,
            "num_encoder_attention_heads": HEADS,
            "num_decoder_attention_heads": HEADS,
            "ngram": 2,
            "num_buckets": 8,
            "relative_max_distance": 16,
        },
        pairs(),
    ),
    "mt5": Case("MT5ForConditionalGeneration", T5, pairs()),
    "umt5": Case("UMT5ForConditionalGeneration", T5, pairs()),
    "longt5": Case(
        "LongT5ForConditionalGeneration",
        {**T5, "local_radius": 2, "encoder_attention_type": "transient-global", "global_block_size": 4},
        pairs(),
    ),
    "switch": Case(
        "SwitchTransformersForConditionalGeneration",
        {
            **T5,
            "num_experts": 4,
            "num_sparse_encoder_layers": 1,
            "num_sparse_decoder_layers": 1,
            "expert_capacity": 8,
        },
        pairs(),
    ),
    "nllb moe": Case(
        "NllbMoeForConditionalGeneration",
        {
            **SEQUENCES,
            "num_experts": 4,
            "encoder_sparse_step": 2,
            "decoder_sparse_step": 2,
            "expert_capacity": 8,
        },
        pairs(),
    ),
    # Experts
    "qwen2 moe": Case("Qwen2MoeForCausalLM", {**EXPERTS, "shared_expert_intermediate_size": 12}, texts()),
    "olmoe": Case("OlmoeForCausalLM", EXPERTS, texts()),
    "granitemoe": Case("GraniteMoeForCausalLM", EXPERTS, texts()),
    "jetmoe": Case("JetMoeForCausalLM", {**EXPERTS, "kv_channels": 4, "num_key_value_heads": 2}, texts()),
    "minimax": Case("MiniMaxForCausalLM", {**EXPERTS, "block_size": 8}, texts()),
    "phimoe": Case("PhimoeForCausalLM", EXPERTS, texts()),
    "dbrx": Case(
        "DbrxForCausalLM",
        {
            **SPECIAL,
            "d_model": WIDTH,
            "n_heads": HEADS,
            "n_layers": LAYERS,
            "max_seq_len": 64,
            "vocab_size": TOKENS,
            "attn_config": {"kv_n_heads": 2, "rope_theta": 10000.0, "clip_qkv": 8.0},
            "ffn_config": {"ffn_hidden_size": UNITS, "moe_num_experts": 4, "moe_top_k": 2},
        },
        texts(),
    ),
    "ernie4.5 moe": Case(
        "Ernie4_5_MoeForCausalLM",
        {**EXPERTS, "moe_num_experts": 4, "moe_k": 2, "moe_num_shared_experts": 1},
        texts(),
    ),
    "deepseek v2": Case("DeepseekV2ForCausalLM", {**EXPERTS, **LATENT}, texts()),
    "glm4 moe": Case(
        "Glm4MoeForCausalLM", {**EXPERTS, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1}, texts()
    ),
    "dots1": Case(
        "Dots1ForCausalLM",
        {**EXPERTS, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1, "n_shared_experts": 1},
        texts(),
    ),
    "hunyuan moe": Case("HunYuanMoEV1ForCausalLM", {**EXPERTS, "moe_topk": 2}, texts()),
    "llama4": Case(
        "Llama4ForCausalLM", {**EXPERTS, "intermediate_size_mlp": UNITS, "attention_chunk_size": 8}, texts()
    ),
    "flex olmo": Case("FlexOlmoForCausalLM", EXPERTS, texts()),
    # Recurrent
    "mamba2": Case(
        "Mamba2ForCausalLM", {**STATE, "num_heads": 4, "head_dim": 8, "n_groups": 2, "chunk_size": 4}, texts()
    ),
    "falcon mamba": Case("FalconMambaForCausalLM", {**STATE, "time_step_rank": 4}, texts()),
    "recurrent gemma": Case(
        "RecurrentGemmaForCausalLM",
        {
            **TEXT,
            "lru_width": WIDTH,
            "attention_window_size": 4,
            "block_types": ["recurrent", "attention"],
            "num_key_value_heads": 1,
        },
        texts(),
    ),
    "bamba": Case(
        "BambaForCausalLM",
        {
            **MODERN,
            "mamba_n_heads": 4,
            "mamba_d_head": 8,
            "mamba_n_groups": 1,
            "mamba_d_state": 4,
            "mamba_chunk_size": 4,
            "attn_layer_indices": [1],
        },
        texts(),
    ),
    "zamba2": Case(
        "Zamba2ForCausalLM",
        {
            **TEXT,
            "mamba_d_state": 4,
            "n_mamba_heads": 4,
            "mamba_ngroups": 1,
            "chunk_size": 4,
            "layers_block_type": ["mamba", "hybrid"],
            "hybrid_layer_ids": [1],
            "num_mem_blocks": 1,
            "mamba_headdim": 8,
        },
        texts(),
    ),
    "jamba": Case(
        "JambaForCausalLM",
        {
            **EXPERTS,
            "attn_layer_period": 2,
            "attn_layer_offset": 1,
            "expert_layer_period": 2,
            "expert_layer_offset": 1,
            "use_mamba_kernels": False,
            "mamba_d_state": 4,
            "mamba_dt_rank": 4,
        },
        texts(),
    ),
    "lfm2": Case(
        "Lfm2ForCausalLM",
        {**MODERN, "layer_types": ["conv", "full_attention"], "block_ff_dim": UNITS, "block_multiple_of": 4},
        texts(),
    ),
    "qwen3 next": Case(
        "Qwen3NextForCausalLM",
        {
            **EXPERTS,
            "shared_expert_intermediate_size": 12,
            "linear_num_value_heads": 2,
            "linear_num_key_heads": 2,
            "linear_key_head_dim": 4,
            "linear_value_head_dim": 4,
            "layer_types": ["linear_attention", "full_attention"],
        },
        texts(),
    ),
    # Images
    "deit": Case("DeiTForMaskedImageModeling", {**VISION, "encoder_stride": 4}, images(16, mask=16)),
    "beit": Case(
        "BeitForImageClassification",
        {
            **VISION,
            "use_mask_token": True,
            "use_relative_position_bias": True,
            "layer_scale_init_value": 0.5,
            "num_labels": 3,
        },
        images(16),
    ),
    "data2vec vision": Case(
        "Data2VecVisionForImageClassification",
        {**VISION, "use_relative_position_bias": True, "num_labels": 3},
        images(16),
    ),
    "swinv2": Case(
        "Swinv2ForImageClassification",
        {
            "image_size": 16,
            "patch_size": 2,
            "embed_dim": 8,
            "depths": [2, 2],
            "num_heads": [2, 4],
            "window_size": 4,
        },
        images(16),
    ),
    "focalnet": Case(
        "FocalNetForImageClassification",
        {
            "image_size": 32,
            "patch_size": 4,
            "embed_dim": 8,
            "hidden_sizes": [8, 16],
            "depths": [1, 1],
            "focal_levels": [1, 1],
            "focal_windows": [3, 3],
        },
        images(32),
    ),
    "pvt": Case(
        "PvtForImageClassification",
        {
            "image_size": 32,
            "num_encoder_blocks": 2,
            "depths": [1, 1],
            "sequence_reduction_ratios": [2, 1],
            "hidden_sizes": [8, 16],
            "patch_sizes": [4, 2],
            "strides": [4, 2],
            "num_attention_heads": [1, 2],
            "mlp_ratios": [2, 2],
            "num_labels": 3,
        },
        images(32),
    ),
    "pvt v2": Case(
        "PvtV2ForImageClassification",
        {
            "image_size": 32,
            "num_encoder_blocks": 2,
            "depths": [1, 1],
            "sr_ratios": [2, 1],
            "hidden_sizes": [8, 16],
            "patch_sizes": [7, 3],
            "strides": [4, 2],
            "num_attention_heads": [1, 2],
            "mlp_ratios": [2, 2],
            "num_labels": 3,
        },
        images(32, 48),
    ),
    "poolformer": Case(
        "PoolFormerForImageClassification",
        {
            "num_encoder_blocks": 2,
            "depths": [1, 1],
            "hidden_sizes": [8, 16],
            "patch_sizes": [7, 3],
            "strides": [4, 2],
            "padding": [2, 1],
            "mlp_ratio": 2.0,
            "num_labels": 3,
        },
        images(32, 48),
    ),
    "swiftformer": Case(
        "SwiftFormerForImageClassification",
        {
            "depths": [1, 1],
            "embed_dims": [8, 16],
            "mlp_ratio": 2,
            "downsamples": [True, True],
            "num_labels": 3,
            "image_size": 32,
        },
        images(32, 64),
    ),
    "efficientnet": Case(
        "EfficientNetForImageClassification",
        {
            "image_size": 32,
            "in_channels": [32, 8],
            "out_channels": [8, 12],
            "kernel_sizes": [3, 3],
            "strides": [1, 2],
            "num_block_repeats": [1, 1],
            "expand_ratios": [1, 2],
            "width_coefficient": 1.0,
            "depth_coefficient": 1.0,
            "hidden_dim": 1280,
            "depthwise_padding": [],
            "num_labels": 3,
        },
        images(32, 48),
    ),
    "mobilenet v1": Case(
        "MobileNetV1ForImageClassification",
        {"depth_multiplier": 0.25, "min_depth": 4, "image_size": 32},
        images(32, 48),
    ),
    "mobilevit": Case(
        "MobileViTForImageClassification",
        {
            "image_size": 64,
            "patch_size": 2,
            "hidden_sizes": [8, 12, 16],
            "neck_hidden_sizes": [8, 8, 8, 8, 8, 8, 16],
            "num_attention_heads": 2,
            "mlp_ratio": 2.0,
            "num_labels": 3,
        },
        images(64, 96),
    ),
    "mobilevitv2": Case(
        "MobileViTV2ForImageClassification",
        {
            "image_size": 64,
            "width_multiplier": 0.125,
            "base_attn_unit_dims": [16, 16, 16],
            "n_attn_blocks": [1, 1, 1],
            "num_labels": 3,
        },
        images(64, 96),
    ),
    "bit": Case(
        "BitForImageClassification",
        {**STAGES, "embedding_size": 8, "hidden_sizes": [8, 16], "num_groups": 2},
        images(32, 48),
    ),
    "dinov2": Case(
        "Dinov2ForImageClassification", {**VISION, "mlp_ratio": 2, "num_labels": 3}, images(16, 24)
    ),
    "dinov2 with registers": Case(
        "Dinov2WithRegistersForImageClassification",
        {**VISION, "mlp_ratio": 2, "num_labels": 3},
        images(16, 24),
    ),
    "ijepa": Case("IJepaForImageClassification", {**VISION, "num_labels": 3}, images(16)),
    "vit mae": Case(
        "ViTMAEForPreTraining",
        {
            **VISION,
            "decoder_hidden_size": 12,
            "decoder_num_hidden_layers": 1,
            "decoder_num_attention_heads": 2,
            "decoder_intermediate_size": 20,
        },
        images(16),
    ),
    "vit msn": Case("ViTMSNForImageClassification", {**VISION, "num_labels": 3}, images(16)),
    "yolos": Case(
        "YolosForObjectDetection",
        {**VISION, "image_size": [16, 16], "num_detection_tokens": 3, "num_labels": 3},
        images(16, 24),
    ),
    "hiera": Case(
        "HieraForImageClassification",
        {
            "image_size": [32, 32],
            "patch_size": [7, 7],
            "patch_stride": [4, 4],
            "patch_padding": [3, 3],
            "embed_dim": 8,
            "depths": [1, 1],
            "num_heads": [1, 2],
            "masked_unit_size": [2, 2],
            "query_stride": [2, 2],
            "num_query_pool": 1,
            "num_labels": 3,
        },
        images(32),
    ),
    "glpn": Case(
        "GLPNForDepthEstimation",
        {
            "num_encoder_blocks": 4,
            "depths": [1, 1, 1, 1],
            "sr_ratios": [2, 1, 1, 1],
            "hidden_sizes": [8, 8, 12, 16],
            "num_attention_heads": [1, 1, 1, 2],
            "mlp_ratios": [2, 2, 2, 2],
            "decoder_hidden_size": 8,
        },
        images(64, 96),
    ),
    "swin2sr": Case(
        "Swin2SRForImageSuperResolution",
        {
            "image_size": 16,
            "embed_dim": 8,
            "depths": [1, 1],
            "num_heads": [2, 2],
            "window_size": 4,
            "upscale": 2,
        },
        images(16, 24),
    ),
    "vitmatte": Case(
        "VitDetModel",
        {
            **VISION,
            "mlp_ratio": 2,
            "window_size": 2,
            "window_block_indices": [0],
            "use_relative_position_embeddings": True,
        },
        images(16),
    ),
    "sam vision": Case(
        "SamVisionModel",
        {
            **SHAPE,
            "image_size": 16,
            "patch_size": 4,
            "window_size": 2,
            "global_attn_indexes": [1],
            "output_channels": 8,
            "mlp_ratio": 2.0,
            "mlp_dim": UNITS,
        },
        images(16),
    ),
    "siglip vision": Case("SiglipVisionModel", VISION, images(16)),
    "clip vision": Case("CLIPVisionModel", VISION, images(16)),
    "owlvit": Case(
        "OwlViTModel",
        {"text_config": TEXT, "vision_config": VISION, "projection_dim": 8},
        with_images(texts()),
    ),
    "groupvit": Case(
        "GroupViTModel",
        {
            "text_config": TEXT,
            "vision_config": {
                **VISION,
                "depths": [1, 1, 1],
                "num_group_tokens": [4, 2, 0],
                "num_output_groups": [4, 2, 0],
            },
            "projection_dim": 8,
            "projection_intermediate_dim": 12,
        },
        with_images(texts()),
    ),
    "vilt": Case("ViltModel", {**TEXT, **VISION}, with_images(texts())),
    "blip text": Case("BlipTextModel", {**TEXT, "encoder_hidden_size": WIDTH, "is_decoder": False}, texts()),
    "videomae": Case(
        "VideoMAEForVideoClassification",
        {**VISION, "num_frames": 4, "tubelet_size": 2, "num_labels": 3},
        lambda: [{"pixel_values": size * torch.randn(2, 4, 3, 16, 16)} for size in (1, 1, 10)],
    ),
    "timesformer": Case(
        "TimesformerForVideoClassification",
        {**VISION, "num_frames": 2, "num_labels": 3},
        lambda: [{"pixel_values": size * torch.randn(2, 2, 3, 16, 16)} for size in (1, 1, 10)],
    ),
    # Sound
    "hubert": Case("HubertForCTC", WAVES, sounds(64, 131)),
    "wavlm": Case("WavLMForCTC", {**WAVES, "num_buckets": 8, "max_bucket_distance": 16}, sounds(64, 131)),
    "wav2vec2-conformer": Case(
        "Wav2Vec2ConformerForCTC",
        {**WAVES, "conv_depthwise_kernel_size": 3, "position_embeddings_type": "relative"},
        sounds(64, 131),
    ),
    "wav2vec2-conformer, rotary": Case(
        "Wav2Vec2ConformerForCTC",
        {**WAVES, "conv_depthwise_kernel_size": 3, "position_embeddings_type": "rotary"},
        sounds(64, 131),
    ),
    "wav2vec2-bert": Case(
        "Wav2Vec2BertForCTC",
        {**WAVES, "feature_projection_input_dim": 8, "conv_depthwise_kernel_size": 3},
        sounds(12, 31, name="input_features", features=8),
    ),
    "unispeech": Case("UniSpeechForCTC", WAVES, sounds(64, 131)),
    "unispeech sat": Case("UniSpeechSatForCTC", WAVES, sounds(64, 131)),
    "data2vec audio": Case("Data2VecAudioForCTC", WAVES, sounds(64, 131)),
    "sew": Case("SEWForCTC", {**WAVES, "squeeze_factor": 2}, sounds(64, 132)),
    "sew-d": Case(
        "SEWDForCTC",
        {**WAVES, "squeeze_factor": 2, "max_position_embeddings": 64, "position_buckets": 8},
        sounds(64, 132),
    ),
    "speech to text": Case(
        "Speech2TextForConditionalGeneration",
        {
            **SEQUENCES,
            "input_feat_per_channel": 8,
            "input_channels": 1,
            "conv_channels": 8,
            "num_conv_layers": 2,
            "max_source_positions": 64,
            "max_target_positions": 64,
        },
        lambda: [
            {"input_features": torch.randn(2, n, 8), "decoder_input_ids": tokens(m)}
            for n, m in ((16, 5), (16, 5), (41, 3), (9, 21))
        ],
    ),
    "audio spectrogram": Case(
        "ASTForAudioClassification",
        {
            **SHAPE,
            "intermediate_size": UNITS,
            "patch_size": 4,
            "frequency_stride": 3,
            "time_stride": 3,
            "max_length": 16,
            "num_mel_bins": 8,
            "num_labels": 3,
        },
        lambda: [{"input_values": size * torch.randn(2, 16, 8)} for size in (1, 1, 10)],
    ),
    "moonshine": Case(
        "MoonshineForConditionalGeneration",
        {
            **SPECIAL,
            **TEXT,
            "encoder_num_hidden_layers": 2,
            "decoder_num_hidden_layers": 2,
            "encoder_num_attention_heads": 4,
            "decoder_num_attention_heads": 4,
            "decoder_start_token_id": 1,
        },
        lambda: [
            {"input_values": torch.randn(2, n), "decoder_input_ids": tokens(m)}
            for n, m in ((1200, 5), (1200, 5), (2500, 3))
        ],
    ),
    "encodec": Case(
        "EncodecModel",
        {
            "sampling_rate": 100,
            "audio_channels": 1,
            "target_bandwidths": [1.0],
            "hidden_size": 8,
            "num_filters": 4,
            "num_residual_layers": 1,
            "upsampling_ratios": [2, 2],
            "codebook_size": 8,
            "codebook_dim": 8,
            "num_lstm_layers": 1,
            "kernel_size": 3,
            "last_kernel_size": 3,
        },
        lambda: [{"input_values": torch.randn(1, 1, n)} for n in (32, 32, 61)],
    ),
    # Time
    "informer": Case("InformerForPrediction", {**SERIES, "sampling_factor": 1}, series()),
    "autoformer": Case(
        "AutoformerForPrediction",
        {**SERIES, "label_length": 2, "moving_average": 3, "autocorrelation_factor": 2},
        series(),
    ),
    "time series transformer": Case("TimeSeriesTransformerForPrediction", SERIES, series()),
    "patchtst": Case(
        "PatchTSTForPrediction",
        {
            "num_input_channels": 2,
            "context_length": 16,
            "patch_length": 4,
            "patch_stride": 4,
            "prediction_length": 4,
            "d_model": WIDTH,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS,
            "ffn_dim": UNITS,
        },
        patches(),
    ),
    "patchtst, pretraining": Case(
        "PatchTSTForPretraining",
        {
            "num_input_channels": 2,
            "context_length": 16,
            "patch_length": 4,
            "patch_stride": 4,
            "d_model": WIDTH,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS,
            "ffn_dim": UNITS,
        },
        patches(),
    ),
    "patchtsmixer": Case(
        "PatchTSMixerForPrediction",
        {
            "num_input_channels": 2,
            "context_length": 16,
            "patch_length": 4,
            "patch_stride": 4,
            "prediction_length": 4,
            "d_model": 8,
            "num_layers": 2,
        },
        lambda: [{k: v for k, v in c.items() if k == "past_values"} for c in patches()()],
    ),
    "decision transformer": Case(
        "DecisionTransformerModel",
        {
            "state_dim": 3,
            "act_dim": 2,
            "hidden_size": WIDTH,
            "n_layer": 2,
            "n_head": 4,
            "max_ep_len": 40,
            "n_positions": 128,
            "n_inner": UNITS,
        },
        lambda: [
            {
                "states": torch.randn(2, n, 3),
                "actions": torch.randn(2, n, 2),
                "rewards": torch.randn(2, n, 1),
                "returns_to_go": torch.randn(2, n, 1),
                "timesteps": torch.randint(0, 40, (2, n)),
                "attention_mask": torch.ones(2, n),
            }
            for n in (4, 4, 11)
        ],
    ),
}
