/* One reservation, a cancel, the queue deadline, and a loss reported although Redis is well. */
#define FALSE_ALARM
#define CANCEL_A 1
#define TIME_PASSES
#include "../dropgate.pml"
