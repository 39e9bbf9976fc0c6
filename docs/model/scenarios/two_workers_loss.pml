/* One reservation whose message two order consumers may hold at once, and the loss of Redis. */
#define WORKERS 2
#define REDIS_LOSSES 1
#include "../dropgate.pml"
