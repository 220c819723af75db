"""Detection heads: one answers with as many boxes as it finds, one with a fixed number."""

import torch
from torch import nn


def overlap(boxes):
    """Intersection over union of each box with each other; the last axis holds x0, y0, x1, y1."""
    a, b = boxes.unsqueeze(-2), boxes.unsqueeze(-3)
    size = (torch.minimum(a[..., 2:], b[..., 2:]) - torch.maximum(a[..., :2], b[..., :2])).clamp(min=0)
    shared = size.prod(-1)
    area = (boxes[..., 2:] - boxes[..., :2]).prod(-1)
    return shared / (area.unsqueeze(-1) + area.unsqueeze(-2) - shared).clamp(min=1e-6)


class Detector(nn.Module):
    """A head on a grid of cells: a box and a score for each cell."""

    def __init__(self, width=8, limit=0.4):
        super().__init__()
        self.limit = limit
        self.trunk = nn.Sequential(
            nn.Conv2d(3, width, 3, 2, 1), nn.ReLU(), nn.Conv2d(width, width, 3, 2, 1), nn.ReLU()
        )
        self.box = nn.Conv2d(width, 4, 1)
        self.score = nn.Conv2d(width, 1, 1)

    def candidates(self, image):
        grid = self.trunk(image)
        high, wide = grid.shape[-2:]
        y, x = torch.meshgrid(torch.arange(high), torch.arange(wide), indexing="ij")
        centre = torch.stack([x, y], -1).reshape(1, -1, 2) * 4.0 + 2.0
        raw = self.box(grid).flatten(2).transpose(1, 2)
        middle = centre + 2.0 * torch.tanh(raw[..., :2])
        half = 2.0 + 4.0 * torch.sigmoid(raw[..., 2:])
        return torch.cat([middle - half, middle + half], -1), torch.sigmoid(self.score(grid)).flatten(1)


class DetectorNms(Detector):
    """Boxes that no better box covers, of all images of the batch one after another."""

    def forward(self, image):
        boxes, scores = self.candidates(image)
        scores, order = scores.sort(dim=1, descending=True, stable=True)
        boxes = boxes.gather(1, order.unsqueeze(-1).expand(-1, -1, 4))
        covered = overlap(boxes).triu(diagonal=1).amax(1)
        keep = (covered < self.limit) & (scores > 0.5)
        index, place = torch.where(keep)
        return {"image_index": index, "boxes": boxes[index, place], "scores": scores[keep]}


class DetectorTopK(Detector):
    """The best boxes of each image, always as many."""

    def __init__(self, width=8, limit=0.4, best=10):
        super().__init__(width, limit)
        self.best = best

    def forward(self, image):
        boxes, scores = self.candidates(image)
        scores, order = scores.sort(dim=1, descending=True, stable=True)
        scores, order = scores[:, : self.best], order[:, : self.best]
        boxes = boxes.gather(1, order.unsqueeze(-1).expand(-1, -1, 4))
        covered = overlap(boxes).triu(diagonal=1).amax(1)
        return {"boxes": boxes, "scores": torch.where(covered < self.limit, scores, 0.0)}
