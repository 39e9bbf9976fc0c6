/* One reservation and two losses, the second perhaps during the load. */
#define REDIS_LOSSES 2
#define LOAD_IN_CHUNKS
#include "../dropgate.pml"
