"""Models of images."""

from tests.zoo.architecture import Architecture
from tests.zoo.inputs import integers, normal, uniform

FREE = {"height": (12, 9, 21), "width": (16, 10, 23)}

IMAGES = (
    Architecture("resnet", "vision.py", "ResNet", {"image": normal("batch", 3, 32, 32)}),
    Architecture("mobilenet", "vision.py", "MobileNet", {"image": normal("batch", 3, 32, 32)}),
    Architecture(
        "efficientnet", "vision.py", "EfficientNet", {"image": normal("batch", 3, 32, 32)}, gain=1.4
    ),
    Architecture("convnext", "vision.py", "ConvNext", {"image": normal("batch", 3, 32, 32)}),
    Architecture("mlp_mixer", "vision.py", "MlpMixer", {"image": normal("batch", 3, 16, 16)}),
    Architecture(
        "vision_transformer", "vision.py", "VisionTransformer", {"image": normal("batch", 3, 16, 16)}
    ),
    Architecture(
        "resnet_free_size",
        "vision.py",
        "ResNet",
        {"image": normal("batch", 3, "height", "width")},
        sizes={"height": (32, 24, 41), "width": (32, 27, 45)},
        notes="any height and width",
    ),
    Architecture(
        "unet",
        "dense_images.py",
        "UNet",
        {"image": normal("batch", 1, "height", "width")},
        sizes=FREE,
        notes="any height and width, also odd",
    ),
    Architecture(
        "super_resolution",
        "dense_images.py",
        "SuperResolution",
        {"image": uniform("batch", 3, "height", "width")},
        sizes=FREE,
        gain=0.3,
        notes="pixel shuffle; any height and width",
    ),
    Architecture(
        "style_net",
        "dense_images.py",
        "StyleNet",
        {"image": normal("batch", 3, "height", "width")},
        sizes=FREE,
        notes="group norm and instance norm; any height and width",
    ),
    Architecture(
        "segmenter",
        "dense_images.py",
        "Segmenter",
        {"image": integers(0, 256, "batch", "height", "width", 3, dtype="uint8")},
        outputs=("classes", "confidence"),
        sizes=FREE,
        notes="bytes in, a class for each pixel out",
    ),
    Architecture(
        "detector_nms",
        "detection.py",
        "DetectorNms",
        {"image": normal("batch", 3, "height", "width")},
        outputs=("image_index", "boxes", "scores"),
        sizes={"height": (32, 24, 44), "width": (40, 28, 36)},
        batched=False,
        notes="as many boxes as it finds; non-maximum suppression",
    ),
    Architecture(
        "detector_top_k",
        "detection.py",
        "DetectorTopK",
        {"image": normal("batch", 3, "height", "width")},
        outputs=("boxes", "scores"),
        sizes={"height": (32, 24, 44), "width": (40, 28, 36)},
        notes="the ten best boxes of each image",
    ),
)
