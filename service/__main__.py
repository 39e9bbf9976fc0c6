"""`python -m service` is `dropgate`."""

from service.cli.main import main

main()
