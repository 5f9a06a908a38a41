"""``python -m cotenant``."""

from cotenant.app.main import main

__all__: list[str] = []

if __name__ == "__main__":
    main()
