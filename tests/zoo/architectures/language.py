"""Models built from transformers configurations, small and with random weights."""

import torch
import transformers as hf
from torch import nn


class Bert(nn.Module):
    def __init__(self, vocabulary=99, width=32):
        super().__init__()
        self.model = hf.BertModel(
            hf.BertConfig(
                vocab_size=vocabulary,
                hidden_size=width,
                num_hidden_layers=2,
                num_attention_heads=4,
                intermediate_size=2 * width,
                max_position_embeddings=64,
            )
        )

    def forward(self, input_ids, attention_mask):
        return self.model(input_ids=input_ids, attention_mask=attention_mask)


class DistilBert(hf.DistilBertForSequenceClassification):
    """The class of the library itself, so that the answer is its dataclass."""

    def __init__(self, vocabulary=99, width=32, classes=3):
        super().__init__(
            hf.DistilBertConfig(
                vocab_size=vocabulary,
                dim=width,
                n_layers=2,
                n_heads=4,
                hidden_dim=2 * width,
                max_position_embeddings=64,
                num_labels=classes,
            )
        )


class Roberta(nn.Module):
    def __init__(self, vocabulary=99, width=32, classes=4):
        super().__init__()
        self.model = hf.RobertaForSequenceClassification(
            hf.RobertaConfig(
                vocab_size=vocabulary,
                hidden_size=width,
                num_hidden_layers=2,
                num_attention_heads=4,
                intermediate_size=2 * width,
                max_position_embeddings=64,
                num_labels=classes,
                pad_token_id=1,
            )
        )

    def forward(self, input_ids, attention_mask):
        return self.model(input_ids, attention_mask=attention_mask)


class Gpt2(nn.Module):
    def __init__(self, vocabulary=80, width=32):
        super().__init__()
        self.model = hf.GPT2LMHeadModel(
            hf.GPT2Config(
                vocab_size=vocabulary,
                n_embd=width,
                n_layer=2,
                n_head=4,
                n_positions=64,
                bos_token_id=1,
                eos_token_id=2,
            )
        )

    def forward(self, input_ids, attention_mask):
        return {
            "logits": self.model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False).logits
        }


class Llama(nn.Module):
    def __init__(self, vocabulary=80, width=32):
        super().__init__()
        self.model = hf.LlamaForCausalLM(
            hf.LlamaConfig(
                vocab_size=vocabulary,
                hidden_size=width,
                intermediate_size=2 * width,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                max_position_embeddings=64,
            )
        )

    def forward(self, input_ids, attention_mask):
        out = self.model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False)
        return {"logits": out.logits}


class T5Encoder(nn.Module):
    def __init__(self, vocabulary=70, width=24):
        super().__init__()
        self.model = hf.T5EncoderModel(
            hf.T5Config(vocab_size=vocabulary, d_model=width, d_kv=8, d_ff=48, num_layers=2, num_heads=3)
        )

    def forward(self, input_ids, attention_mask):
        return self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state


class WhisperEncoder(nn.Module):
    def __init__(self, width=24, frames=40):
        super().__init__()
        whole = hf.WhisperModel(
            hf.WhisperConfig(
                d_model=width,
                encoder_layers=2,
                encoder_attention_heads=4,
                encoder_ffn_dim=48,
                decoder_layers=1,
                decoder_attention_heads=4,
                decoder_ffn_dim=48,
                num_mel_bins=16,
                max_source_positions=frames // 2,
                vocab_size=60,
                pad_token_id=0,
                bos_token_id=1,
                eos_token_id=2,
                decoder_start_token_id=1,
            )
        )
        self.encoder = whole.encoder

    def forward(self, input_features):
        return self.encoder(input_features)


class Clip(nn.Module):
    def __init__(self, vocabulary=80, width=24):
        super().__init__()
        shared = {
            "hidden_size": width,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
        }
        text = {"vocab_size": vocabulary, "max_position_embeddings": 32, **shared}
        text |= {"bos_token_id": 1, "eos_token_id": 2}
        vision = {"image_size": 16, "patch_size": 4, **shared}
        self.model = hf.CLIPModel(hf.CLIPConfig(text_config=text, vision_config=vision, projection_dim=16))

    def forward(self, input_ids, attention_mask, pixel_values):
        out = self.model(input_ids=input_ids, attention_mask=attention_mask, pixel_values=pixel_values)
        return {
            "text": out.text_embeds,
            "image": out.image_embeds,
            "similarity": (out.text_embeds * out.image_embeds).sum(-1),
        }


class Swin(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.model = hf.SwinForImageClassification(
            hf.SwinConfig(
                image_size=32,
                patch_size=4,
                embed_dim=12,
                depths=[2, 2],
                num_heads=[2, 2],
                window_size=4,
                num_labels=classes,
            )
        )

    def forward(self, pixel_values):
        return self.model(pixel_values=pixel_values).logits


class Wav2Vec2(nn.Module):
    def __init__(self, letters=12):
        super().__init__()
        self.model = hf.Wav2Vec2ForCTC(
            hf.Wav2Vec2Config(
                vocab_size=letters,
                hidden_size=24,
                num_hidden_layers=2,
                num_attention_heads=4,
                intermediate_size=48,
                conv_dim=(12, 12),
                conv_stride=(4, 2),
                conv_kernel=(8, 4),
                num_conv_pos_embeddings=8,
                num_conv_pos_embedding_groups=2,
            )
        )

    def forward(self, input_values):
        return torch.log_softmax(self.model(input_values).logits, dim=-1)
