/* One reservation, one payment, its cancellation or time-out, and a refund asked for twice, with or without
   restock. */
#define CANCEL_A 1
#define CANCEL_ONLY_ORDERS
#define PAYMENTS 1
#define REFUNDS 2
#include "../dropgate.pml"
