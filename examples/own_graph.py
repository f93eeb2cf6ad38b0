"""A graph of your own, with edges you do not trust, saved and reloaded."""

import tempfile

import torch
from torch_geometric.data import Data

import gsebo


def main() -> None:
    clean = gsebo.generate_graph(500, num_classes=3, homophily=0.9, seed=1)
    noisy = gsebo.add_inter_class_edges(clean, 400, seed=1)
    # What fit needs: features, edges, labels and two masks.
    data = Data(
        x=noisy.x,
        edge_index=noisy.edge_index,
        y=noisy.y,
        train_mask=noisy.train_mask,
        val_mask=noisy.val_mask,
    )
    model = gsebo.GSEBO("sage", max_outer_steps=20, random_state=0).fit(data)
    added = torch.arange(data.num_edges) >= clean.num_edges
    ratio = model.strength_ / model.initial_strength_
    print(f"mean strength of given edges {ratio[~added].mean():.3f} of the start")
    print(f"mean strength of added edges {ratio[added].mean():.3f} of the start")

    with tempfile.TemporaryDirectory() as folder:
        model.save(folder)
        again = gsebo.load_model(folder)
    same = torch.equal(again.predict(data), model.transduction_)
    print(f"the reloaded model predicts the same: {same}")


if __name__ == "__main__":
    main()
