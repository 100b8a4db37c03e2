from fscil.cli import main

main()
