"""Where each node came from: module hooks and source lines, noted while the user's code
runs.
"""
