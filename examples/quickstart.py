"""Learn the edge strengths of Cora and look at what changed."""

import gsebo


def main() -> None:
    data = gsebo.load_data("cora")
    vanilla = gsebo.Vanilla("gcn", random_state=0).fit(data)
    model = gsebo.GSEBO("gcn", random_state=0).fit(data)
    print(f"vanilla GCN {vanilla.score(data):.3f}, GSEBO {model.score(data):.3f}")

    ratio = model.strength_ / model.initial_strength_
    changed = ratio != 1
    print(f"{int(changed.sum())} of {data.num_edges} edges changed their strength")
    weakest = int(ratio.argmin())
    source, target = data.edge_index[:, weakest].tolist()
    print(f"weakened most: {source} -> {target}, {ratio[weakest]:.2f} of its start")


if __name__ == "__main__":
    main()
