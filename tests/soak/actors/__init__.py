"""Who acts on the server. Each has ``async def run()`` and can run alone: ``--only``."""
