"""Learned rules that come with the library, as files; what each was made of is in it and in docs/meta.md."""
