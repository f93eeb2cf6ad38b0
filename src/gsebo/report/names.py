"""Names as people read them, for tables, figures and pages."""

_METHODS = {
    "gsebo": "GSEBO",
    "train_val": "train + val",
    "retrain": "retrained",
    "single_level": "single level",
    "mlp": "MLP",
    "adaedge": "AdaEdge",
    "gaug_m": "GAug-M",
    "gaug_o": "GAug-O",
    "dropedge": "DropEdge",
    "neuralsparse": "NeuralSparse",
    "magna": "MAGNA",
    "ptdnet": "PTDNet",
    "bgcn": "BGCN",
    "vgcn": "VGCN",
    "idgl": "IDGL",
    "lds": "LDS",
    "prognn": "Pro-GNN",
}
_BACKBONES = {
    "gcn": "GCN",
    "gat": "GAT",
    "sage": "GraphSAGE",
    "sage-gcn": "GraphSAGE (gcn)",
    "jk": "JK-Net",
    "jk-sage": "JK-Net (GraphSAGE)",
    "magna": "MAGNA",
    "mlp": "MLP",
}
_DATASETS = {
    "cora": "Cora",
    "citeseer": "Citeseer",
    "terrorist": "Terrorist",
    "air-usa": "Air-USA",
    "pubmed": "Pubmed",
    "amazon-computers": "Amazon Computers",
    "minesweeper": "Minesweeper",
    "texas": "Texas",
    "wordnet-lexname": "WordNet",
    "blogcatalog": "BlogCatalog",
    "flickr": "Flickr",
}


def method_title(name: str) -> str:
    """Name of a method in its paper; one without another name keeps its own.

    >>> method_title("gaug_o"), method_title("vanilla")
    ('GAug-O', 'vanilla')
    """
    return _METHODS.get(name, name)


def backbone_title(name: str) -> str:
    """Name of a network; one of PyG's keeps its own.

    >>> backbone_title("sage"), backbone_title("GATv2")
    ('GraphSAGE', 'GATv2')
    """
    return _BACKBONES.get(name, name)


def dataset_title(name: str) -> str:
    """Name of a dataset; one without a title keeps its own.

    >>> dataset_title("air-usa")
    'Air-USA'
    """
    return _DATASETS.get(name, name)
