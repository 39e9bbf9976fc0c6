/* One reservation, a cancel while queued or ordered, and the loss of Redis. */
#define REDIS_LOSSES 1
#define CANCEL_A 1
#include "../dropgate.pml"
