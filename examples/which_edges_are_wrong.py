"""Which edges of a graph are wrong? From a networkx graph to a list, with reasons."""

import networkx

import gsebo


def friends() -> networkx.Graph:
    """Some people, a few of whose clubs are known, and edges, some of them wrong."""
    clean = gsebo.generate_graph(300, num_classes=3, homophily=0.98, seed=1)
    noisy = gsebo.add_inter_class_edges(clean, 60, seed=1)
    graph = networkx.Graph()
    for node in range(noisy.num_nodes):
        graph.add_node(f"person {node}", x=noisy.x[node].tolist())
        if node < 30:
            graph.nodes[f"person {node}"]["label"] = f"club {int(noisy.y[node])}"
    for one, other in noisy.edge_index.T.tolist():
        graph.add_edge(f"person {one}", f"person {other}")
    return graph


def main() -> None:
    graph = friends()
    rows = gsebo.suspicious_edges(graph, rounds=1, random_state=0)
    print("\n".join(rows.attrs["summary"]))
    print(rows[["source", "target", "probability", "reason"]].head(10).to_string())
    likely = rows[rows["probability"] >= 0.5]
    graph.remove_edges_from(zip(likely["source"], likely["target"], strict=True))
    print(f"{graph.number_of_edges()} edges are left")


if __name__ == "__main__":
    main()
