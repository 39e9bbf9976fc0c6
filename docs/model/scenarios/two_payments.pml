/* One reservation, two payments for it, and its cancellation or time-out. */
#define CANCEL_A 1
#define CANCEL_ONLY_ORDERS
#define PAYMENTS 2
#include "../dropgate.pml"
