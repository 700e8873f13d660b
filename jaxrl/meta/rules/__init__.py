"""Files of learned rules that come with the library; each states how it was learned, as does docs/meta.md."""
