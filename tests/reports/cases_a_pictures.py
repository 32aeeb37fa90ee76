"""Pictures and their places in the text."""

import json

from shapes_a import Rebuilt, config, crash, jsonl


def picture_error(message):
    """The check of image tokens against features."""
    return crash(
        [
            (
                "/opt/lib/python3.11/site-packages/transformers/trainer.py",
                3698,
                "training_step",
                "loss = self.compute_loss(model, inputs)",
            ),
            (
                "/opt/lib/python3.11/site-packages/transformers/models/qwen2_vl/modeling_qwen2_vl.py",
                1211,
                "forward",
                "raise ValueError(",
            ),
        ],
        f"ValueError: {message}",
    )


CASES = [
    Rebuilt(
        "records without an image placeholder",
        {
            "err.log": picture_error("Image features and image tokens do not match: tokens: 0, features 1224"),
            "data.json": json.dumps(
                [
                    {
                        "id": str(row),
                        "image": f"{row}.jpg",
                        "conversations": [
                            {"from": "human", "value": f"What stands on shelf {row}?"},
                            {"from": "gpt", "value": f"Shelf {row} holds {row * 3 % 17} jars."},
                        ],
                    }
                    for row in range(30)
                ]
            ),
        },
        ("image-placeholder-mismatch",),
    ),
    Rebuilt(
        "max_length cuts placeholders, the pixels stay",
        {
            "err.log": picture_error("Image features and image tokens do not match: tokens: 14650, features: 17152"),
            "train.py": "from trl import SFTConfig\nargs = SFTConfig('out', max_length=16384, per_device_train_batch_size=4)\n",
        },
        ("image-placeholder-mismatch", "truncation-eats-answer"),
    ),
    Rebuilt(
        "two placeholders too many: stray ones in the text",
        {"err.log": picture_error("Image features and image tokens do not match: tokens: 300, features 298")},
        ("image-placeholder-mismatch",),
    ),
    Rebuilt(
        "off by one at inference: 575 tokens, 576 features",
        {
            "infer.log": crash(
                [
                    (
                        "/opt/lib/python3.11/site-packages/transformers/models/llava/modeling_llava.py",
                        420,
                        "forward",
                        "raise ValueError(",
                    )
                ],
                "ValueError: Image features and image tokens do not match: tokens: 575, features 576",
            )
        },
        ("image-placeholder-mismatch",),
    ),
    Rebuilt(
        "processor truncates the text through the image tokens",
        {
            "err.log": crash(
                [
                    (
                        "/opt/lib/python3.11/site-packages/transformers/models/qwen2_5_vl/modeling_qwen2_5_vl.py",
                        1300,
                        "get_placeholder_mask",
                        "raise ValueError(",
                    )
                ],
                "ValueError: Image features and image tokens do not match: tokens: 20, features 2640",
            ),
            "prep.py": "batch = processor(text=texts, images=images, truncation=True, max_length=20, return_tensors='pt')\n",
        },
        ("image-placeholder-mismatch",),
    ),
    Rebuilt(
        "answers deny the picture when there is a system turn",
        {
            "config.json": config(
                "qwen2_vl", architectures=["Qwen2VLForConditionalGeneration"], vision_config={"hidden_size": 1280}
            ),
            "outputs.jsonl": jsonl(
                *(
                    {
                        "prompt": f"<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWhat is in picture {row}?<|im_end|>\n<|im_start|>assistant\n",
                        "generated_text": "I cannot see any image. Please upload the picture.",
                        "usage": {"prompt_tokens": 37},
                    }
                    for row in range(6)
                )
            ),
        },
        ("image-features-not-inserted",),
    ),
]
