"""The maze: task, levels and their kit, and the editor in which a designer builds one."""
