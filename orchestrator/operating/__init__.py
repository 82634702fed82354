"""What operators and their monitors see of an installation: metrics, health, what is wrong.

Everything here reads. What a part of the product knows of itself stays in that part; this package
asks all of them, so it stands above them.
"""
