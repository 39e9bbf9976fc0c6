"""What others' clients do on the same broker: yardsticks, which know nothing of Dropgate."""
