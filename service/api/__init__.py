"""The HTTP surface: storefront, payments and desk."""
